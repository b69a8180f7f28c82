"""One TOML file describes a fleet: defaults, flags over the file, errors that name file, section and key."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.core.nouns import DEFAULT_CLASSES
from mainspring.fleet.config import FleetConfig, address_of, read_config
from mainspring.fleet.errors import ConfigError
from mainspring.fleet.serve import node_command

WHOLE = """
[router]
listen = "0.0.0.0:7000"
transports = ["tcp"]
drain_s = 5
[tls]
folder = "pki/router-hill"
authority = "pki"
[limits]
payload_mib = 64
idle_s = 3.0
[[class]]
name = "now"
priority = 1
target_s = 0.5
[[class]]
name = "later"
priority = 0
[[node]]
name = "ant"
model = "models/tiny"
args = ["--device", "cpu"]
[models.tiny]
numerics = ["fp32"]
"""


def test_a_whole_fleet_from_one_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(WHOLE)
    (tmp_path / "models/tiny").mkdir(parents=True)
    config = read_config(path)
    settings = config.settings()
    assert config.address == ("0.0.0.0", 7000)  # noqa: S104 - nothing is bound
    assert [(slo.name, slo.target_s) for slo in settings.classes] == [("now", 0.5), ("later", None)]
    assert settings.payload_bytes == 64 << 20
    assert settings.rules.timing.idle_s == 3.0
    assert settings.models["tiny"].numerics == ("fp32",)
    assert config.tls.folder == str(tmp_path / "pki/router-hill"), "relative to the file"
    command = node_command(config, "ant", 7000)
    assert command[command.index("--join") + 1] == "127.0.0.1:7000"
    assert command[command.index("--model") + 1] == str(tmp_path / "models/tiny")
    assert command[-2:] == ["--device", "cpu"]


@pytest.mark.parametrize("model", ["embedded", "owner/name"])
def test_a_model_that_is_no_folder_is_a_name(tmp_path: Path, model: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(f'[tls]\nauthority = "pki"\n[[node]]\nname = "ant"\nmodel = "{model}"\n')
    command = node_command(read_config(path), "ant", 7000)
    assert command[command.index("--model") + 1] == model


def test_without_a_file_everything_has_its_default() -> None:
    config = read_config(None)
    assert config.settings().classes == DEFAULT_CLASSES
    assert config.address == ("127.0.0.1", 7300)


def test_flags_go_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(WHOLE)
    config = read_config(path, router__listen="[::1]:9", tls__folder="here", router__drain_s=None)
    assert config.address == ("::1", 9)
    assert config.tls.folder == "here", "relative to the caller"
    assert config.router.drain_s == 5.0


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[router]\nlisten = 7", "router.listen"),
        ('[router]\nlisten = "nowhere"', "router.listen"),
        ('[router]\nlisten = "a:99999"', "router.listen"),
        ('[router]\nlisen = "a:1"', "router"),
        ("[limits]\nlinks = 0", "limits.links"),
        ("[limits]\nidle_s = 0.01", "limits.idle_s"),
        ('[[class]]\nname = "a"\npriority = 1\ntarget_s = -1.0', "class[0].target_s"),
        ('[[class]]\nname = "a"\npriority = 1\n[[class]]\nname = "a"\npriority = 2', "class.name"),
        ('[[node]]\nname = "../x"\nmodel = "m"', "node"),
        ('[[node]]\nname = "x"\nmodel = "m"', "node[0]"),
        ('[[node]]\nname = "x\\n"\nmodel = "m"', "node"),
        ('[[class]]\nname = "x"\npriority = 99999999999999999999', "class"),
        ('[[class]]\nname = "x"\npriority = 1\ntoken_s = 1e6', "class"),
        ('[models.tiny]\nnumerics = ["fp7"]', "models"),
        ("[[class", "TOML"),
    ],
)
def test_errors_name_file_section_and_key(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
    assert where in str(caught.value)


def test_the_resolved_configuration_is_printed_and_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(WHOLE)
    result = CliRunner().invoke(main, ["router", "--config", str(path), "--check"])
    assert result.exit_code == 0, result.output
    assert msgspec.json.decode(result.output, type=FleetConfig) == read_config(path)
    path.write_text("[limits]\nlinks = 0")
    result = CliRunner().invoke(main, ["router", "--config", str(path), "--check"])
    assert result.exit_code == 2
    assert "limits.links" in result.output


def test_addresses() -> None:
    assert address_of("[fe80::1]:80", "x") == ("fe80::1", 80)
    for bad in ("", "host", "host:", ":80", "host:http"):
        with pytest.raises(ConfigError):
            address_of(bad, "x")
