"""A toy model: random weights in the file format GGUF (version 3), by hand, for servers that want a model to run."""

from __future__ import annotations

import array
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTH, INNER, HEADS, LAYERS = 64, 128, 4, 2
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|im_end|>", *BYTES, "▁", "▁moth", "▁wing", "▁light", "▁dusk"]
KINDS = [2, 3, 3, 3, 3, *[6] * 256, *[1] * 5]  # unknown, control, byte, normal
_U32, _I32, _F32, _TEXT, _LIST = 4, 5, 6, 8, 9  # types of values
_ALIGN = 32


def write(file: Path) -> None:
    """Writes the model, half a megabyte; the same each time."""
    tensors = list(_tensors())
    about = {
        "general.architecture": "llama", "general.name": "toy", "llama.context_length": 16384,
        "llama.embedding_length": WIDTH, "llama.block_count": LAYERS, "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.attention.key_length": WIDTH // HEADS,
        "llama.attention.value_length": WIDTH // HEADS, "llama.rope.dimension_count": WIDTH // HEADS,
        "llama.rope.freq_base": 10000.0, "llama.vocab_size": len(WORDS), "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": WORDS, "tokenizer.ggml.scores": [0.0] * len(WORDS),
        "tokenizer.ggml.token_type": KINDS, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(about))
    head += b"".join(_text(key) + _value(value) for key, value in about.items())
    data = b""
    for name, shape, values in tensors:
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        data += _padded(values.tobytes())
    file.write_bytes(_padded(head) + data)


def _tensors() -> Iterator[tuple[str, tuple[int, ...], array.array[float]]]:
    """Name, shape and values of each."""
    chance = random.Random(7)

    def made(name: str, *shape: int) -> tuple[str, tuple[int, ...], array.array[float]]:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        plain = name.endswith("norm.weight")
        return name, shape, array.array("f", (1.0 if plain else chance.gauss(0, 0.05) for _ in range(count)))

    yield made("token_embd.weight", len(WORDS), WIDTH)
    yield made("output_norm.weight", WIDTH)
    yield made("output.weight", len(WORDS), WIDTH)
    for layer in (f"blk.{number}." for number in range(LAYERS)):
        yield made(f"{layer}attn_norm.weight", WIDTH)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield made(f"{layer}{part}.weight", WIDTH, WIDTH)
        yield made(f"{layer}ffn_norm.weight", WIDTH)
        yield made(f"{layer}ffn_gate.weight", INNER, WIDTH)
        yield made(f"{layer}ffn_up.weight", INNER, WIDTH)
        yield made(f"{layer}ffn_down.weight", WIDTH, INNER)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _bare(value: Any) -> tuple[int, bytes]:
    if isinstance(value, str):
        return _TEXT, _text(value)
    if isinstance(value, float):
        return _F32, struct.pack("<f", value)
    return _U32, struct.pack("<I", value)


def _value(value: Any) -> bytes:
    if not isinstance(value, list):
        kind, packed = _bare(value)
        return struct.pack("<I", kind) + packed
    kind = _I32 if isinstance(value[0], int) else _bare(value[0])[0]
    return struct.pack("<IIQ", _LIST, kind, len(value)) + b"".join(_bare(one)[1] for one in value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGN)
