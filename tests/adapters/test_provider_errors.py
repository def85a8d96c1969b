"""What a failure means: every way APIs say that a prompt is too long, and everything that only sounds like it."""

from __future__ import annotations

import json

import pytest

from transom.adapters.provider_errors import FailureKind, failure_of, is_passing

OVERFLOWS = {
    "anthropic": "prompt is too long: 205000 tokens > 200000 maximum",
    "anthropic, sum": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "openai responses": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "openai chat": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "openai chat, sum": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens "
    "(5000 in the messages, 4000 in the completion). Please reduce the length of the messages or completion.",
    "litellm": "ContextWindowExceededError: the context window exceeded by 200 tokens",
    "google": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "bedrock": "Input is too long for requested model.",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "groq": "Please reduce the length of the messages or completion.",
    "openrouter": "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens "
    "(120000 of text input, 5000 of tool input, 15000 in the output).",
    "poolside": "the maximum allowed input length of 65536 tokens was passed",
    "together": "Input (9000) longer than model's context length (8192)",
    "tgi": "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8200 `inputs` tokens and 500 `max_new_tokens`",
    "mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "llama.cpp": "the request exceeds the available context size (4096 tokens), try increasing it",
    "lm studio": "The number of tokens to keep from the initial prompt is greater than the context length",
    "ds4": "prompt has 9000 tokens, configured context size is 8192",
    "vllm": "The prompt (total length 40000) is longer than the maximum model length of 32768.",
    "vllm, output": "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is "
    "32768 tokens and your request has 30000 input tokens (4000 > 32768 - 30000).",
    "copilot": "prompt token count of 130000 exceeds the limit of 128000",
    "minimax": "invalid params, context window exceeds limit (2013)",
    "kimi": "Your request exceeded model token limit: 131072 (requested: 140000)",
    "dashscope": "Range of input length should be [1, 30720]",
    "z.ai": "Prompt exceeds max length",
    "ollama": "prompt too long; exceeded max context length by 1204 tokens",
}

FALSE_FRIENDS: dict[str, tuple[int, str, FailureKind]] = {
    "bedrock throttles": (400, "Too many tokens, please wait before trying again.", "rate"),
    "tokens a minute": (400, "Request too large on tokens per min (TPM): Limit 30000, Requested 45000.", "rate"),
    "a rate limit names the context": (400, "Rate limit: too many requests with a context exceeding 8k", "rate"),
    "unavailable": (503, "Service Unavailable: the maximum context length cannot be checked now", "unavailable"),
    "a picture": (
        400,
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 > 5242880",
        "invalid",
    ),
    "many files": (400, "The input exceeds the limit: at most 100 files may be uploaded", "invalid"),
    "pdf pages": (400, "A maximum of 100 PDF pages may be provided; the prompt exceeds it", "invalid"),
    "output cap": (
        400,
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude",
        "invalid",
    ),
    "output cap, by the window": (
        400,
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 40000. This model's maximum context length is 32768 "
            "tokens and your request has 50 input tokens (40000 > 32768 - 50)."
        ),
        "invalid",
    ),
    "output cap, as a context": (400, "max_tokens must be at most the maximum context length of 8192", "invalid"),
    "a description": (
        400,
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024",
        "invalid",
    ),
    "a cache key": (400, "Invalid prompt_cache_key: input exceeds 64 characters", "invalid"),
    "long context not sold": (400, "The long context beta is not yet available for this subscription.", "invalid"),
    "quota": (429, "You exceeded your current quota, please check your plan and billing details.", "quota"),
    "credit": (400, "Your credit balance is too low to access the API.", "quota"),
    "a field": (400, "temperature: Input should be less than or equal to 1", "invalid"),
}


def openai_error(message: str, code: str | None = None, kind: str = "invalid_request_error") -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


@pytest.mark.parametrize("message", OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_prompt_that_does_not_fit_is_known_by_its_words(message: str) -> None:
    assert failure_of(400, openai_error(message)).kind == "overflow"


@pytest.mark.parametrize(("status", "message", "kind"), FALSE_FRIENDS.values(), ids=FALSE_FRIENDS)
def test_what_only_sounds_like_it_is_something_else(status: int, message: str, kind: FailureKind) -> None:
    assert failure_of(status, openai_error(message)).kind == kind


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "unavailable", "Overloaded"),
        (b'{"object":"error","message":"prompt too long","type":"BadRequestError","code":400}', "overflow", "prompt too long"),
        (b'{"error":"prompt too long; exceeded max context length"}', "overflow", "prompt too long; exceeded max context length"),
        (b'[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum","status":"INVALID_ARGUMENT"}}]', "overflow", "The input token count (9) exceeds the maximum"),
        (b'{"error":{"code":400,"message":"n","type":"exceed_context_size_error","n_ctx":4096}}', "overflow", "n"),
        (b'{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"prompt is too long"}}}', "overflow", 'Provider returned error: "prompt is too long"'),
        (b'{"detail":[{"loc":["body"],"msg":"field required"}]}', "invalid", '[{"loc":["body"],"msg":"field required"}]'),
        (b"<html>Bad Request</html>", "invalid", "<html>Bad Request</html>"),
    ],
)  # fmt: skip
def test_every_shape_of_an_error_is_read(body: bytes, kind: FailureKind, message: str) -> None:
    found = failure_of(400, body)
    assert (found.kind, found.message) == (kind, message)


def test_what_a_field_says_outranks_the_words() -> None:
    said = openai_error("the request was aborted: quota of patience; rate limit", "context_length_exceeded")
    assert failure_of(400, said).kind == "overflow"
    assert failure_of(400, openai_error("prompt is too long", "rate_limit_exceeded")).kind == "rate"
    assert failure_of(429, openai_error("prompt is too long")).kind == "rate"
    assert failure_of(429, openai_error("limit", "insufficient_quota")).kind == "quota"
    assert failure_of(401, openai_error("prompt is too long")).kind == "auth"
    assert failure_of(402, b"").kind == "quota"


def test_the_status_speaks_where_nothing_else_does() -> None:
    assert [failure_of(status, b"x").kind for status in (400, 403, 404, 408, 413, 422, 500, 503, 529, 301)] == [
        *("invalid", "auth", "invalid", "unavailable", "overflow", "invalid"),
        *("unavailable", "unavailable", "unavailable", "invalid"),
    ]


def test_a_413_about_a_picture_is_no_overflow() -> None:
    assert failure_of(413, openai_error("the image is larger than 20 MB", None, "")).kind == "invalid"


def test_an_empty_400_is_an_overflow_only_where_the_provider_means_it_so() -> None:
    assert failure_of(400, b"", "cerebras").kind == "overflow"
    assert failure_of(400, b"", "openai").kind == "invalid"
    assert failure_of(413, b"", "openai").kind == "overflow"


def test_an_overflow_said_by_a_status_of_500_is_one() -> None:
    assert failure_of(500, openai_error(OVERFLOWS["llama.cpp"])).kind == "overflow"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error":{"message":"x","code":500}}', "unavailable"),
        (b'{"error":{"message":"x","code":400}}', "invalid"),
        (b'{"error":{"message":"x","code":429}}', "unavailable"),
        (b'{"error":{"message":"x","type":"invalid_request_error"}}', "invalid"),
        (b'{"error":{"message":"x"}}', "unavailable"),
        (b'{"type":"error","code":"rate_limit_exceeded","message":"slow"}', "rate"),
    ],
)
def test_an_error_inside_a_stream_has_its_code_for_a_status(body: bytes, kind: FailureKind) -> None:
    assert failure_of(0, body).kind == kind


def test_only_what_passes_is_worth_another_try() -> None:
    kinds = {status: is_passing(failure_of(status, b"x")) for status in (400, 401, 402, 404, 413, 429, 500, 529)}
    assert [status for status, passes in kinds.items() if passes] == [429, 500, 529]


def test_a_page_instead_of_an_error_is_cut_short() -> None:
    assert len(failure_of(502, b"<html>" + b"x" * 100_000).message) == 2000
