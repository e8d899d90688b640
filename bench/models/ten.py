"""Writes the models that bench/run measures: NAME.onnx with NAME.npz, one batch and its labels, in FOLDER.

Ten models of the usual families, single attentions whose kernels are measured and, if they are named, three for a GPU. All have
random weights; the loss is the mean cross entropy of 'logits' with 'labels'.
usage: ten.py FOLDER [NAME ...]          (needs torch, onnx and onnxscript)
"""
import math
import os
import sys
import warnings
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


# ---- layers ---------------------------------------------------------------------------

class Attention(nn.Module):
    def __init__(self, width, heads, causal=False, fused=False):
        super().__init__()
        self.heads, self.causal, self.fused = heads, causal, fused
        if fused:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.o = nn.Linear(width, width)

    def forward(self, x):
        width = x.shape[-1]
        parts = self.qkv(x).split(width, -1) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.o(y.transpose(1, 2).flatten(2))


class After(nn.Module):
    """A block that normalizes after each of its two parts."""
    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.norm1 = Attention(width, heads), nn.LayerNorm(width, 1e-12)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, 1e-12)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Before(nn.Module):
    """A block that normalizes before each of its two parts."""
    def __init__(self, width, heads, causal, gelu, eps=1e-5):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width, eps), Attention(width, heads, causal, fused=True)
        self.norm2, self.gelu = nn.LayerNorm(width, eps), gelu
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))


# ---- transformers ---------------------------------------------------------------------

def draw(net):
    """As BERT and GPT-2 begin."""
    for m in net.modules():
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)


class Bert(nn.Module):
    def __init__(self, words=30522, width=512, layers=4, heads=8, length=512):
        super().__init__()
        self.tokens, self.places, self.types = (nn.Embedding(n, width) for n in (words, length, 2))
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(After(width, heads) for _ in range(layers))
        self.dense, self.last = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        self.bias = nn.Parameter(torch.zeros(words))
        draw(self)

    def forward(self, input_ids, token_type_ids):
        x = self.tokens(input_ids) + self.types(token_type_ids) + self.places.weight[:input_ids.shape[1]]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.last(F.gelu(self.dense(x))), self.tokens.weight, self.bias)


class Gpt(nn.Module):
    def __init__(self, words, width, heads, gelu='none', layers=6, length=256):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Before(width, heads, True, gelu) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        draw(self)

    def forward(self, input_ids):
        x = self.tokens(input_ids) + self.places.weight[:input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


class Vit(nn.Module):
    def __init__(self, width=192, layers=12, heads=3, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 197, width))
        self.layers = nn.ModuleList(Before(width, heads, False, 'none', 1e-6) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, classes)
        draw(self)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


# ---- T5 -------------------------------------------------------------------------------

class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def buckets(length, both, count=32, far=128):
    """The bucket of each distance from query to key, [length, length]."""
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    half = count // 2 if both else count
    first = half * (distance > 0) if both else np.zeros_like(distance)
    distance = np.abs(distance) if both else -np.minimum(distance, 0)
    exact = half // 2
    log = np.log(np.maximum(distance, 1) / exact) / math.log(far / exact) * (half - exact)
    return torch.from_numpy(first + np.where(distance < exact, distance, np.minimum(exact + log.astype(int), half - 1)))


class RelativeAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, y, bias):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(x), self.k(y), self.v(y)))
        if torch.compiler.is_exporting():  # the exporter of torch 2.13 fails on attention with a mask
            scores = q @ k.transpose(2, 3)
            y = torch.softmax(scores if bias is None else scores + bias, -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        return self.o(y.transpose(1, 2).flatten(2))


class T5Block(nn.Module):
    def __init__(self, width, heads, across):
        super().__init__()
        self.norm1, self.own = Rms(width), RelativeAttention(width, heads)
        if across:
            self.norm2, self.across = Rms(width), RelativeAttention(width, heads)
        self.norm3 = Rms(width)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x, bias, encoded=None):
        y = self.norm1(x)
        x = x + self.own(y, y, bias)
        if encoded is not None:
            x = x + self.across(self.norm2(x), encoded, None)
        return x + self.down(F.relu(self.up(self.norm3(x))))


class T5(nn.Module):
    def __init__(self, words=32128, width=256, layers=4, heads=4, source=128, target=64):
        super().__init__()
        self.width = width
        self.tokens = nn.Embedding(words, width)
        self.encoder = nn.ModuleList(T5Block(width, heads, False) for _ in range(layers))
        self.decoder = nn.ModuleList(T5Block(width, heads, True) for _ in range(layers))
        self.encoder_bias, self.decoder_bias = nn.Embedding(32, heads), nn.Embedding(32, heads)
        self.encoder_norm, self.decoder_norm = Rms(width), Rms(width)
        self.register_buffer('encoder_buckets', buckets(source, True), persistent=False)
        self.register_buffer('decoder_buckets', buckets(target, False), persistent=False)
        self.register_buffer('future', torch.triu(torch.full((target, target), -1e9), 1), persistent=False)
        draw(self)
        for m in self.modules():
            if isinstance(m, RelativeAttention):
                nn.init.normal_(m.q.weight, std=(width * width / heads) ** -0.5)
        nn.init.normal_(self.tokens.weight, std=1.0)

    def decoded(self, input_ids, decoder_input_ids):
        bias = self.encoder_bias(self.encoder_buckets).permute(2, 0, 1)[None]
        x = self.tokens(input_ids)
        for layer in self.encoder:
            x = layer(x, bias)
        encoded = self.encoder_norm(x)
        bias = self.decoder_bias(self.decoder_buckets).permute(2, 0, 1)[None] + self.future
        x = self.tokens(decoder_input_ids)
        for layer in self.decoder:
            x = layer(x, bias, encoded)
        return self.decoder_norm(x)

    def forward(self, input_ids, decoder_input_ids):
        x = self.decoded(input_ids, decoder_input_ids)
        return F.linear(x * self.width ** -0.5, self.tokens.weight)


# ---- convolutions ---------------------------------------------------------------------

class Residual(nn.Module):
    """Convolutions given as (channels, kernel, stride), each with its norm, around which the input is added."""
    def __init__(self, channels, *convolutions):
        super().__init__()
        self.parts, stride, first = nn.ModuleList(), math.prod(s for _, _, s in convolutions), channels
        for out, kernel, step in convolutions:
            self.parts.append(normed(channels, out, kernel, step))
            channels = out
        self.short = normed(first, channels, 1, stride) if stride > 1 or first != channels else nn.Identity()

    def forward(self, x):
        y = x
        for part in self.parts[:-1]:
            y = F.relu(part(y))
        return F.relu(self.parts[-1](y) + self.short(x))


def normed(channels, out, kernel, stride):
    return nn.Sequential(nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out))


def basic(channels, width, stride):
    return Residual(channels, (width, 3, stride), (width, 3, 1)), width


def bottleneck(channels, width, stride):
    return Residual(channels, (width, 1, 1), (width, 3, stride), (4 * width, 1, 1)), 4 * width


class ResNet(nn.Module):
    def __init__(self, block, depths, classes=1000):
        super().__init__()
        self.stem, channels, layers = normed(3, 64, 7, 2), 64, []
        for stage, depth in enumerate(depths):
            for k in range(depth):
                layer, channels = block(channels, 64 << stage, 2 if stage and not k else 1)
                layers.append(layer)
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')

    def forward(self, pixels):
        x = F.max_pool2d(F.relu(self.stem(pixels)), 3, 2, 1)
        return self.head(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dense, self.head = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, pixels):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(pixels)))), 2)
        return self.head(F.relu(self.dense(x.flatten(1))))


# ---- others ---------------------------------------------------------------------------

class Lstm(nn.Module):
    def __init__(self, words=10000, width=512, layers=2):
        super().__init__()
        self.tokens, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, input_ids):
        return self.head(self.layers(self.tokens(input_ids))[0])


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, pixels):
        return self.head(F.relu(self.two(F.relu(self.one(pixels)))))


class Single(nn.Module):
    """One attention, 64 wide, whose operands are parameters; the columns of its output are the classes."""
    def __init__(self, length, causal):
        super().__init__()
        self.causal = causal
        self.q, self.k, self.v = (nn.Parameter(torch.randn(1, TOKENS // length, length, 64)) for _ in range(3))

    def forward(self, scale):
        return F.scaled_dot_product_attention(scale * self.q, self.k, self.v, is_causal=self.causal)


# ---- models and batches ---------------------------------------------------------------

FLOATS = 0  # in place of a number of classes
TOKENS = 8192  # of all heads of a single attention
# NAME: (what makes it, {input: (shape, classes)}, shape of the labels, classes)
MODELS = {
    'bert-small': (Bert, {'input_ids': ((8, 128), 30522), 'token_type_ids': ((8, 128), 2)}, (8, 128), 30522),
    'gpt2-nano': (lambda: Gpt(65, 384, 6), {'input_ids': ((12, 256), 65)}, (12, 256), 65),
    'gpt2-small': (lambda: Gpt(50257, 512, 8, 'tanh'), {'input_ids': ((4, 256), 50257)}, (4, 256), 50257),
    't5': (T5, {'input_ids': ((8, 128), 32128), 'decoder_input_ids': ((8, 64), 32128)}, (8, 64), 32128),
    'vit-tiny': (Vit, {'pixels': ((8, 3, 224, 224), FLOATS)}, (8,), 1000),
    'resnet18': (lambda: ResNet(basic, (2, 2, 2, 2)), {'pixels': ((8, 3, 224, 224), FLOATS)}, (8,), 1000),
    'resnet50': (lambda: ResNet(bottleneck, (3, 4, 6, 3)), {'pixels': ((4, 3, 224, 224), FLOATS)}, (4,), 1000),
    'cnn': (Cnn, {'pixels': ((128, 1, 28, 28), FLOATS)}, (128,), 10),
    'lstm': (Lstm, {'input_ids': ((16, 64), 10000)}, (16, 64), 10000),
    'mlp': (Mlp, {'pixels': ((128, 784), FLOATS)}, (128,), 10),
}
LARGE = {  # for a GPU, when they are named
    'gpt2-124m': (lambda: Gpt(50257, 768, 12, 'tanh', 12, 1024), {'input_ids': ((32, 1024), 50257)}, (32, 1024), 50257),
    'bert-base': (lambda: Bert(30522, 768, 12, 12, 512), {'input_ids': ((32, 128), 30522), 'token_type_ids': ((32, 128), 2)},
                  (32, 128), 30522),
    'resnet50-64': (lambda: ResNet(bottleneck, (3, 4, 6, 3)), {'pixels': ((64, 3, 224, 224), FLOATS)}, (64,), 1000),
}
SINGLE = {f'attention-{length}{"-causal" * causal}': (lambda length=length, causal=causal: Single(length, causal),
                                                      {'scale': ((1, 1, 1, 1), FLOATS)}, (1, TOKENS // length, length), 64)
          for length in (128, 1024) for causal in (False, True)}


ALL = {**MODELS, **LARGE, **SINGLE}


def make(name, models=ALL):
    """The module, in training mode; the same weights each time."""
    torch.manual_seed(0)
    net = models[name][0]().train()
    with torch.no_grad():  # the exporter merges equal initializers
        for p in net.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p), alpha=1e-3)
    return net


def batch_of(inputs, shape, classes):
    draws = np.random.default_rng(0)
    tensors = {**inputs, 'labels': (shape, classes)}
    return {key: draws.integers(0, c, s) if c else draws.standard_normal(s, np.float32) for key, (s, c) in tensors.items()}


# ---- export ---------------------------------------------------------------------------

def set_training(path):
    """The exporter writes every BatchNormalization as for inference, and computes zeros for absent biases."""
    import onnx
    from onnxscript import optimizer
    model = onnx.load(path)
    stored = {initializer.name for initializer in model.graph.initializer}
    for i, node in enumerate(model.graph.node):
        if node.op_type == 'BatchNormalization':
            node.attribute.append(onnx.helper.make_attribute('training_mode', 1))
            node.output.extend([f'norm{i}_mean', f'norm{i}_variance'])
        if node.op_type == 'Conv' and len(node.input) > 2 and node.input[2] not in stored:
            del node.input[2:]
    optimizer.remove_unused_nodes(model)
    onnx.save(model, path)


def export(net, batch, path):
    np.savez(path[:-5] + '.npz', **batch)
    inputs = {key: torch.from_numpy(x) for key, x in batch.items() if key != 'labels'}
    norms = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())  # optimizing folds them into convolutions
    torch.onnx.export(net, (), path, kwargs=inputs, input_names=list(inputs), output_names=['logits'], dynamo=True,
                      opset_version=18, external_data=False, optimize=not norms, verbose=False)
    if norms:
        set_training(path)


def main(make, models, default):
    folder, names = sys.argv[1], sys.argv[2:]
    if sys.argv[1].startswith('-') or not set(names) <= set(models):
        sys.exit(f'usage: {sys.argv[0]} FOLDER [NAME...], of {" ".join(models)}')
    os.makedirs(folder, exist_ok=True)
    warnings.simplefilter('ignore')
    for name in names or default:
        export(make(name), batch_of(*models[name][1:]), os.path.join(folder, name + '.onnx'))
        print(name, flush=True)


if __name__ == '__main__':
    main(make, ALL, {**MODELS, **SINGLE})
