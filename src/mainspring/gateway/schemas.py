"""Bodies as typed records: what msgspec decodes, what the OpenAPI document is made from. Unknown fields are ignored.

Shapes of the scoring routes are those that their clients speak already.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

ModelName = Annotated[str, Meta(max_length=128, description="An alias or a model key; empty for the only model.")]
Identifier = Annotated[str, Meta(min_length=1, max_length=1024)]
Json = Any
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Usage(Struct, frozen=True):
    input_tokens: int


# ---------------------------------------------------------------- /v1/scores


class BehaviorIn(Struct, frozen=True):
    """`definition` has at least three characters."""

    id: Identifier
    definition: Annotated[str, Meta(min_length=3)]


class ScoresIn(Struct, frozen=True):
    """`span`: {input: [messages], output: message}, or any other span format. `respan_params` is never read."""

    span: Json
    behaviors: Annotated[list[BehaviorIn], Meta(min_length=1)]
    model: ModelName = ""
    respan_params: dict[str, Any] | None = None
    on_overflow: Literal["refuse", "cut"] = "refuse"
    include_view: bool = False
    include_familiarity: bool = False


class ScoreOut(Struct, frozen=True):
    """The three sum to 1. `p_not_observable`: the span can't tell, which is not "absent". `familiarity`, where it was
    asked for and the model's bundle can tell: how near the definition is to what the model was trained on."""

    id: str
    p_present: float
    p_absent: float
    p_not_observable: float
    familiarity: float | UnsetType = UNSET


class PieceOut(Struct, frozen=True):
    """A stretch of the rendered view: `kind` control, template or text."""

    kind: str
    text: str


class NoteOut(Struct, frozen=True):
    kind: str
    where: str
    detail: str


class ScoresOut(Struct, frozen=True):
    model: str
    results: list[ScoreOut]
    usage: Usage
    notes: list[NoteOut] | UnsetType = UNSET
    view: list[PieceOut] | UnsetType = UNSET
    format: str | UnsetType = UNSET


# ---------------------------------------------------------------- /v1/systemone


class NoulCriteria(Struct, frozen=True):
    """What makes it true, what makes it false."""

    true: Json = None
    false: Json = None


class NoulQuestion(Struct, frozen=True, tag_field="type", tag="noul"):
    """Yes or no."""

    instructions: Json
    criteria: NoulCriteria | None = None


class ChoiceQuestion(Struct, frozen=True, tag_field="type", tag="choice"):
    """`criteria`: option -> description or null, 1 to 255 of them."""

    instructions: Json
    criteria: Annotated[dict[str, Any], Meta(min_length=1)]


class ScoreQuestion(Struct, frozen=True, tag_field="type", tag="score"):
    """`criteria`: 2 to 10 levels, the lowest first."""

    instructions: Json
    criteria: list[Any]


class SystemOneIn(Struct, frozen=True):
    """`state`: text, or a conversation of any known format, or any other JSON."""

    state: str | dict[str, Any] | list[Any]
    questions: Annotated[dict[Identifier, NoulQuestion | ChoiceQuestion | ScoreQuestion], Meta(min_length=1)]
    model: ModelName = ""


class NoulAnswer(Struct, frozen=True, tag_field="type", tag="noul"):
    """`noul`: how probable yes is."""

    noul: Share


class ChoiceAnswer(Struct, frozen=True, tag_field="type", tag="choice"):
    """`probabilities` of all options sum to 1."""

    choice: str
    probabilities: dict[str, Share]
    confidence: Share


class ScoreAnswer(Struct, frozen=True, tag_field="type", tag="score"):
    """`score`: the mean level, from 0; `probabilities` and `legend` by level."""

    score: float
    probabilities: dict[str, Share]
    legend: dict[str, str]
    confidence: Share


class TokenUsage(Struct, frozen=True):
    input_tokens: int
    output_tokens: int = 0


class SystemOneOut(Struct, frozen=True):
    """`answers` under the ids of their questions."""

    model: str
    answers: dict[str, NoulAnswer | ChoiceAnswer | ScoreAnswer]
    usage: TokenUsage


# ---------------------------------------------------------------- /v1/decisions


class DecisionPredicate(Struct, frozen=True, tag_field="type", tag="predicate"):
    instructions: Annotated[str, Meta(min_length=3)]
    name: str | None = None


class DecisionOption(Struct, frozen=True):
    value: str | bool
    description: str | None = None


class DecisionChoice(Struct, frozen=True, tag_field="type", tag="choice"):
    """2 to 255 choices."""

    instructions: Annotated[str, Meta(min_length=3)]
    choices: list[DecisionOption]
    name: str | None = None


class DecisionLevel(Struct, frozen=True):
    label: str
    description: str | None = None


class DecisionScore(Struct, frozen=True, tag_field="type", tag="score"):
    """2 to 10 levels, the lowest first."""

    instructions: Annotated[str, Meta(min_length=3)]
    levels: list[DecisionLevel]
    name: str | None = None


class DecisionsIn(Struct, frozen=True):
    """`input`: text, or messages with tool calls and all."""

    input: str | list[Any]
    questions: Annotated[list[DecisionPredicate | DecisionChoice | DecisionScore], Meta(min_length=1)]
    model: ModelName = ""


class PredicateAnswer(Struct, frozen=True, tag_field="type", tag="predicate"):
    """`name` where the question has one."""

    probability: Share
    name: str | UnsetType = UNSET


class ValueShare(Struct, frozen=True):
    value: str | bool
    probability: Share


class DecisionChoiceAnswer(Struct, frozen=True, tag_field="type", tag="choice"):
    choice: str | bool
    confidence: Share
    probabilities: list[ValueShare]
    name: str | UnsetType = UNSET


class LevelShare(Struct, frozen=True):
    label: str
    value: int
    probability: Share


class DecisionScoreAnswer(Struct, frozen=True, tag_field="type", tag="score"):
    """`score`: the mean level, from 0."""

    score: float
    confidence: Share
    probabilities: list[LevelShare]
    name: str | UnsetType = UNSET


class CachedTokens(Struct, frozen=True):
    cached_tokens: int


class ReasoningTokens(Struct, frozen=True):
    reasoning_tokens: int = 0


class DecisionsUsage(Struct, frozen=True):
    input_tokens: int
    input_tokens_details: CachedTokens
    total_tokens: int
    output_tokens: int = 0
    output_tokens_details: ReasoningTokens = ReasoningTokens()


class DecisionsOut(Struct, frozen=True):
    """`answers` in the order of the questions."""

    model: str
    answers: list[PredicateAnswer | DecisionChoiceAnswer | DecisionScoreAnswer]
    usage: DecisionsUsage
    object: Literal["decision"] = "decision"


# ---------------------------------------------------------------- query and items

TokenId = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Labels = Annotated[list[TokenId], Meta(min_length=1, max_length=1024)]


class ItemsIn(Struct, frozen=True):
    """Texts, or token ids. `item_first` puts the item before the query."""

    query: str | list[TokenId]
    items: Annotated[list[str | list[TokenId]], Meta(min_length=1)]
    label_token_ids: Labels
    model: ModelName = ""
    item_first: bool = False


class ScoreItemsIn(ItemsIn, frozen=True):
    """`apply_softmax` true: shares among the labels; false: the labels' probabilities among the whole vocabulary."""

    apply_softmax: bool = False


class GenerativeIn(ItemsIn, frozen=True):
    """As for `/v1/score`, but true where nothing is said."""

    apply_softmax: bool = True


class PromptUsage(Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class ScoreItemsOut(Struct, frozen=True):
    """`scores`: a row an item, in the order of `label_token_ids`."""

    scores: list[list[Share]]
    model: str
    usage: PromptUsage
    object: Literal["scoring"] = "scoring"


class ItemScore(Struct, frozen=True):
    index: int
    score: Share
    object: Literal["score"] = "score"


class GenerativeOut(Struct, frozen=True):
    """`data`: the first label's score, an item."""

    data: list[ItemScore]
    model: str
    usage: PromptUsage
    object: Literal["list"] = "list"


# ---------------------------------------------------------------- errors


class ScoringError(Struct, frozen=True, omit_defaults=True):
    """`reason` is for programs and stable; `limit` and `actual` where a limit was exceeded."""

    detail: str
    reason: str
    param: str | None = None
    limit: float | None = None
    actual: float | None = None


class ErrorInner(Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Struct, frozen=True):
    error: ErrorInner


class AnthropicInner(Struct, frozen=True):
    type: str
    message: str
    code: str


class AnthropicError(Struct, frozen=True, tag_field="type", tag="error"):
    error: AnthropicInner
