"""A language model of our own making in a file of a few hundred kilobytes, for tests of what stands around a model.

It is a real GGUF file with a llama's tensors, so a real runtime loads it, renders its chat template, counts its tokens
and caches its prefixes. It knows 256 bytes and three markers. Its layers are zero and its embeddings all alike, so the
next token does not depend on what came before: the model likes tokens in a fixed order, and under a grammar it writes
the first one it likes that the grammar lets through. An order that begins with the quote fills in a form with empty
strings; one that begins with a letter fills each string up to its bound.
"""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from typing import TypeAlias

__all__ = ["MARKERS", "tiny_gguf"]

_Value: TypeAlias = bool | int | float | str | list[str] | list[int]
MARKERS = ("<|end|>", "<|im_start|>", "<|im_end|>")
_WIDTH = 32
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LAST = b" \t\r\n"


def tiny_gguf(path: Path, likes: str = '"}]', context: int = 4096) -> Path:
    """Write the model to `path`: it likes `likes` first, then to end, then what is printable, blanks last."""
    tokens = [*(_shown(byte) for byte in range(256)), "he", *MARKERS]
    scores = _scores(likes.encode(), len(tokens))
    width, size = _WIDTH, len(tokens)
    square = [0.0] * (width * width)
    tensors: list[tuple[str, tuple[int, ...], list[float]]] = [
        ("token_embd.weight", (width, size), [1.0] * (width * size)),
        ("output_norm.weight", (width,), [1.0] * width),
        ("output.weight", (width, size), [score for score in scores for _ in range(width)]),
    ]
    tensors += [(f"blk.0.{name}_norm.weight", (width,), [1.0] * width) for name in ("attn", "ffn")]
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down", "ffn_up")
    tensors += [(f"blk.0.{name}.weight", (width, width), square) for name in names]
    path.write_bytes(_file(_facts(tokens, context), tensors))
    return path


def _facts(tokens: list[str], context: int) -> dict[str, _Value]:
    end = len(tokens) - 1
    return {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.context_length": context,
        "llama.embedding_length": _WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": _WIDTH,
        "llama.attention.head_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": _WIDTH,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - len(MARKERS)) + [3] * len(MARKERS),
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": end - 2,
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": _TEMPLATE,
    }


def _scores(likes: bytes, size: int) -> list[float]:
    """One number a token, the most liked the largest. Bytes that are no character by themselves come last of all."""
    ends = [size - 1]
    printable = [byte for byte in range(33, 127) if byte not in likes]
    others = [byte for byte in range(256) if byte not in likes and byte not in _LAST and not 33 <= byte < 127]
    order = [*likes, *ends, *printable, *_LAST, *others, *range(256, size - 1)]
    scores = [0.0] * size
    for place, token in enumerate(order):
        scores[token] = (size - place) / size
    return scores


def _shown(byte: int) -> str:
    """The character that stands for a byte in a vocabulary of this kind: itself, if it is visible."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [one for one in range(256) if one not in visible]
    return chr(byte) if byte in visible else chr(256 + hidden.index(byte))


def _file(facts: dict[str, _Value], tensors: list[tuple[str, tuple[int, ...], list[float]]]) -> bytes:
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)))
    for key, fact in facts.items():
        out += _string(key) + _value(fact)
    offset, data = 0, bytearray()
    for name, shape, numbers in tensors:
        out += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        data += array("f", numbers).tobytes()
        data += bytes(-len(data) % 32)
        offset = len(data)
    return bytes(out + bytes(-len(out) % 32) + data)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(fact: _Value) -> bytes:
    if isinstance(fact, bool):
        return struct.pack("<I?", 7, fact)
    if isinstance(fact, int):
        return struct.pack("<II", 4, fact)
    if isinstance(fact, float):
        return struct.pack("<If", 6, fact)
    if isinstance(fact, str):
        return struct.pack("<I", 8) + _string(fact)
    body = b"".join(_string(one) if isinstance(one, str) else struct.pack("<i", one) for one in fact)
    return struct.pack("<IIQ", 9, 8 if isinstance(fact[0], str) else 5, len(fact)) + body
