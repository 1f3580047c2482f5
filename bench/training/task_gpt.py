"""A character GPT on the text of Python's standard library; about 1 and 10 million parameters."""

import functools
import hashlib
import os
import sysconfig

import torch
from torch import nn

TEXT_SIZE = 8 << 20
VALIDATION_SIZE = 256 << 10
VOCABULARY = 98  # printable ASCII, newline, tab, anything else


@functools.lru_cache
def text():
    """Tokens of the standard library's modules in order of their names, without tests; and the digest of the tokens.

    Another version of Python has another text: compare losses within one machine only, the digest says which it was.
    """
    root, parts, size = sysconfig.get_path("stdlib"), [], 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            f for f in folders if f not in ("test", "tests", "site-packages", "dist-packages", "__pycache__")
        )
        for name in sorted(names):
            if name.endswith(".py") and size < TEXT_SIZE:
                with open(os.path.join(folder, name), "rb") as f:
                    parts.append(f.read())
                size += len(parts[-1])
    data = torch.frombuffer(bytearray(b"".join(parts)[:TEXT_SIZE]), dtype=torch.uint8).long()
    table = torch.full((256,), VOCABULARY - 1)
    table[32:127] = torch.arange(95)
    table[ord("\n")], table[ord("\t")] = 95, 96
    tokens = table[data]
    return tokens, hashlib.sha256(tokens.to(torch.uint8).numpy().tobytes()).hexdigest()[:16]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        seen = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class GptTask:
    optimizer = "adamw"

    def __init__(self, seed, layers, width, heads, context, batch, lr):
        self.seed, self.shape, self.context, self.batch = seed, (layers, width, heads, context), context, batch
        self.lr = {"adamw": lr, "sgd": 0.05}
        self.tokens, self.digest = text()

    def model(self):
        return Gpt(*self.shape)

    def _cut(self, starts):
        rows = torch.stack([self.tokens[s : s + self.context + 1] for s in starts.tolist()])
        return rows[:, :-1], rows[:, 1:]

    def sample(self, step, rank, ranks, batch):
        source = torch.Generator().manual_seed((self.seed * 1_000_003 + step) * 64 + rank)
        last = len(self.tokens) - self.context - 1
        return self._cut(torch.randint(VALIDATION_SIZE, last, (batch,), generator=source))

    @staticmethod
    def loss(model, sample):
        return nn.functional.cross_entropy(model(sample[0]).flatten(0, 1), sample[1].flatten())

    def validation(self, rank, ranks):
        starts = torch.arange(0, VALIDATION_SIZE - self.context - 1, VALIDATION_SIZE // 64)[rank::ranks]
        return [self._cut(part) for part in starts.split(8)]
