from mainspring.text.chat import Chat
from mainspring.text.span import Span
from mainspring.text.view import View, render_view


def render_cut(chat: Chat, span: Span, suffix: str, *, choice: int = 0, limit: int) -> View:
    return render_view(chat, span, suffix, choice=choice, limit=limit)
