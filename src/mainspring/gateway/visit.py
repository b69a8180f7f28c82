"""What the front knows of one request; routes find it in the ASGI scope."""

from dataclasses import dataclass, field

from starlette.requests import Request

from mainspring.gateway.calls import Stages, Terms
from mainspring.gateway.errors import ClassForbiddenError, ValidationError
from mainspring.gateway.headers import RawHeaders, deadline_of, first, trace_of
from mainspring.gateway.keys import ANONYMOUS, Key
from mainspring.gateway.service import Gateway


@dataclass(eq=False, slots=True)
class Visit:
    """`route` is a path template, for counters; `code` the refusal's, empty for an answer. `held_bytes` of its body
    count as held until it is over: what is made of them is no smaller."""

    gateway: Gateway
    headers: RawHeaders
    path: str
    request_id: str
    began_s: float
    key: Key = ANONYMOUS
    route: str = "other"
    slo: str = ""
    code: str = ""
    stages: Stages | None = None
    cut: bool = False
    held_bytes: int = 0
    in_line: bool = False
    extra: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def line_up(self) -> None:
        """For the loop's time, once the body is here: whoever sends it slowly keeps nobody waiting. BusyError where
        those whose bodies came first have filled the line."""
        now_s = self.gateway.now_s()
        self.gateway.pressure.check_line(now_s)
        self.in_line = True
        self.gateway.pressure.enter(now_s)
        await self.gateway.turnstile.enter()

    def leave_line(self) -> None:
        """There are tokens, or it is over; again is nothing."""
        if self.in_line:
            self.in_line = False
            self.gateway.pressure.leave(self.gateway.now_s())

    async def terms(self) -> Terms:
        """Class, deadline and trace as headers and key have them. ValidationError, ClassForbiddenError; NoRouterError
        where nobody has told which classes there are."""
        await self.gateway.heard()
        self.slo = self._class()
        deadline_s = deadline_of(self.headers)
        return Terms(
            request_id=self.request_id,
            slo=self.slo,
            tenant=self.key.name,
            due_s=None if deadline_s is None else self.began_s + deadline_s,
            trace=trace_of(self.headers),
            ready=self.leave_line,
        )

    def _class(self) -> str:
        """The header's, the key's, the gateway's, and none above the key's ceiling: one that is no class here can't be
        compared with, and lets nothing through."""
        asked = first(self.headers, b"x-slo-class")
        names = self.gateway.class_names()
        if asked and asked not in names:
            raise ValidationError(f"no such class; known are {', '.join(names)}", param="x-slo-class")
        slo = asked or self.key.default or self.gateway.config.default_class
        if self.key.ceiling and self.key.ceiling not in names:
            raise ClassForbiddenError("this key's ceiling is no class of the router", param="x-slo-class")
        if self.key.ceiling and slo in names and names.index(slo) < names.index(self.key.ceiling):
            if asked:
                raise ClassForbiddenError(f"this key goes up to {self.key.ceiling}", param="x-slo-class")
            slo = self.key.ceiling
        return slo[:128]


def visit_of(request: Request) -> Visit:
    found: Visit = request.scope["visit"]
    return found
