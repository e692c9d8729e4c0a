"""Talking to a deployment."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from ninja import Field, Schema

from deployments.schemas.shapes import Input
from deployments.services import chat


class Message(Input):
    role: Literal["system", "user", "assistant"]
    content: str


class ChatRequest(Input):
    """Either `messages` (a chat) or a `prompt` to go on from (plain completion). Nothing of it is kept."""

    messages: list[Message] = Field([], max_length=chat.MAX_MESSAGES)
    prompt: str | None = None
    max_tokens: int = Field(512, ge=1, le=chat.MAX_TOKENS)
    temperature: float = Field(0.7, ge=0, le=chat.MAX_TEMPERATURE)
    stream: bool = False

    def wish(self) -> chat.ChatInput:
        messages = [{"role": message.role, "content": message.content} for message in self.messages]
        return chat.ChatInput(messages, self.prompt, self.max_tokens, self.temperature)


class ChatFigures(Schema):
    """Who answered, and figures. What was not said or measured is null.

    Times are the panel's, in seconds from the moment the node passed the request to the engine. `tokens_per_s` counts
    what came after the first words, until the last.
    """

    process: str
    node: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    first_words_s: float | None
    took_s: float | None
    tokens_per_s: float | None


class ChatAnswer(ChatFigures):
    """A whole answer; `thought` is what a reasoning model said to itself."""

    text: str
    thought: str

    @staticmethod
    def of(answer: chat.Answer) -> ChatAnswer:
        return ChatAnswer(**asdict(answer))
