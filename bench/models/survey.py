"""Writes the models that bench/survey times: NAME.onnx with NAME.npz, one batch and its labels, in FOLDER.

Some fifty models as strangers bring them, by torchvision, by transformers and from here, with random weights. The loss is the mean
cross entropy of 'logits' with 'labels', or their mean squared error if the labels are floats.
usage: survey.py FOLDER [NAME ...]       (needs torch, onnx, onnxscript, torchvision and transformers)
"""
import torch
import torchvision
import transformers
from torch import nn
from torch.nn import functional as F
import ten
from ten import FLOATS, Attention, Before, Residual, Rms


# ---- convolutions ---------------------------------------------------------------------

def twice(channels, out):
    return nn.Sequential(*(layer for c in (channels, out)
                           for layer in (nn.Conv2d(c, out, 3, 1, 1), nn.BatchNorm2d(out), nn.ReLU())))


class Unet(nn.Module):
    def __init__(self, width=16, classes=4):
        super().__init__()
        self.down = nn.ModuleList(twice(width << k >> 1 if k else 3, width << k) for k in range(4))
        self.up = nn.ModuleList(nn.ConvTranspose2d(width << k + 1, width << k, 2, 2) for k in range(3))
        self.left = nn.ModuleList(twice(width << k + 1, width << k) for k in range(3))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, pixels):
        x, kept = self.down[0](pixels), []
        for layer in self.down[1:]:
            kept.append(x)
            x = layer(F.max_pool2d(x, 2))
        for up, left, y in zip(reversed(self.up), reversed(self.left), reversed(kept)):
            x = left(torch.cat([up(x), y], 1))
        return self.head(x).permute(0, 2, 3, 1)


class Vae(nn.Module):
    """Its noise is an input; the divergence is left out."""
    def __init__(self, width=32, codes=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(),
                                     nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.ReLU(), nn.Flatten())
        self.mean, self.log = nn.Linear(256 * width, codes), nn.Linear(256 * width, codes)
        self.first = nn.Linear(codes, 256 * width)
        self.decoder = nn.Sequential(nn.Unflatten(1, (4 * width, 8, 8)),
                                     nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid())

    def forward(self, pixels, noise):
        x = self.encoder(pixels)
        return self.decoder(F.relu(self.first(self.mean(x) + noise * torch.exp(0.5 * self.log(x)))))


class Generator(nn.Sequential):
    """Of DCGAN: 64 x 64."""
    def __init__(self, width=32):
        layers, channels = [], 100
        for k, out in enumerate((8 * width, 4 * width, 2 * width, width)):
            layers += [nn.ConvTranspose2d(channels, out, 4, 2 if k else 1, 1 if k else 0, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        super().__init__(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, noise):
        return super().forward(noise)


class Edsr(nn.Module):
    def __init__(self, width=64, depth=6):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.layers = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1))
                                    for _ in range(depth))
        self.up = nn.Sequential(nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2))

    def forward(self, pixels):
        x = self.first(pixels)
        for layer in self.layers:
            x = x + 0.1 * layer(x)
        return self.last(self.up(x))


class C3d(nn.Module):
    def __init__(self, classes=101):
        super().__init__()
        layers, channels = [], 3
        for k, out in enumerate((32, 64, 128, 128)):
            layers += [nn.Conv3d(channels, out, 3, 1, 1), nn.ReLU(), nn.MaxPool3d((2 if k else 1, 2, 2))]
            channels = out
        self.layers, self.dense, self.head = nn.Sequential(*layers), nn.Linear(128 * 2 * 4 * 4, 512), nn.Linear(512, classes)

    def forward(self, video):
        return self.head(F.relu(self.dense(self.layers(video).flatten(1))))


class M5(nn.Module):
    """Of raw audio."""
    def __init__(self, width=64, classes=35):
        super().__init__()
        layers, channels = [], 1
        for k, out in enumerate((width, width, 2 * width, 4 * width)):
            layers += [nn.Conv1d(channels, out, 3 if k else 80, 1 if k else 4), nn.BatchNorm1d(out), nn.ReLU(), nn.MaxPool1d(4)]
            channels = out
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, wave):
        return self.head(self.layers(wave).mean(-1))


class Wavenet(nn.Module):
    def __init__(self, width=64, depth=8, classes=256):
        super().__init__()
        self.tokens = nn.Embedding(classes, width)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=1 << k) for k in range(depth))
        self.out = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(depth))
        self.one, self.head = nn.Conv1d(width, width, 1), nn.Conv1d(width, classes, 1)

    def forward(self, input_ids):
        x, total = self.tokens(input_ids).transpose(1, 2), 0
        for k, (gates, out) in enumerate(zip(self.gates, self.out)):
            a, b = gates(F.pad(x, (1 << k, 0))).chunk(2, 1)
            a, b = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = x + a, total + b
        return self.head(F.relu(self.one(F.relu(total)))).transpose(1, 2)


class Normed(nn.Module):
    """Blocks of convolutions with a norm other than BatchNorm."""
    def __init__(self, norm, width=32, classes=10):
        super().__init__()
        layers, channels = [], 3
        for out, stride in ((width, 1), (width, 1), (2 * width, 2), (2 * width, 1), (4 * width, 2), (4 * width, 1)):
            layers += [nn.Conv2d(channels, out, 3, stride, 1), norm(out), nn.ReLU()]
            channels = out
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, pixels):
        return self.head(self.layers(pixels).mean((2, 3)))


class Style(nn.Module):
    """Transfer of style: InstanceNorm, reflected padding, nearest upsampling."""
    def __init__(self, width=32):
        super().__init__()
        def layer(channels, out, kernel, stride=1):
            return nn.Sequential(nn.ReflectionPad2d(kernel // 2), nn.Conv2d(channels, out, kernel, stride),
                                 nn.InstanceNorm2d(out, affine=True))
        self.down = nn.ModuleList([layer(3, width, 9), layer(width, 2 * width, 3, 2), layer(2 * width, 4 * width, 3, 2)])
        self.blocks = nn.ModuleList(nn.Sequential(layer(4 * width, 4 * width, 3), nn.ReLU(), layer(4 * width, 4 * width, 3))
                                    for _ in range(3))
        self.up = nn.ModuleList([layer(4 * width, 2 * width, 3), layer(2 * width, width, 3)])
        self.last = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(width, 3, 9))

    def forward(self, pixels):
        x = pixels
        for layer in self.down:
            x = F.relu(layer(x))
        for block in self.blocks:
            x = x + block(x)
        for layer in self.up:
            x = F.relu(layer(F.interpolate(x, scale_factor=2.0, mode='nearest')))
        return self.last(x)


class Convlstm(nn.Module):
    def __init__(self, width=32, kernel=3):
        super().__init__()
        self.width, self.gates = width, nn.Conv2d(1 + width, 4 * width, kernel, padding=kernel // 2)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, video):
        h = c = torch.zeros(video.shape[0], self.width, *video.shape[-2:])
        for x in video.unbind(1):
            i, f, g, o = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


class Digits(nn.Module):
    """PyTorch's own example, without dropout, of LeNet's size."""
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.dense, self.head = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, pixels):
        x = F.relu(F.max_pool2d(self.two(F.relu(F.max_pool2d(self.one(pixels), 2))), 2))
        return self.head(F.relu(self.dense(x.flatten(1))))


# ---- recurrent layers -----------------------------------------------------------------

class Recurrent(nn.Module):
    def __init__(self, layer, words=5000, width=256, classes=0, **more):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.layers = layer(width, width, batch_first=True, **more)
        self.head = nn.Linear(width * (2 if more.get('bidirectional') else 1), classes or words)

    def forward(self, input_ids):
        return self.head(self.layers(self.tokens(input_ids))[0])


class Mamba(nn.Module):
    """A selective state space, computed by chunks as a matrix product with decays (Mamba-2)."""
    def __init__(self, words=1000, width=256, layers=4, heads=8, state=32):
        super().__init__()
        self.tokens, self.heads, self.state = nn.Embedding(words, width), heads, state
        self.norms = nn.ModuleList(Rms(width) for _ in range(layers + 1))
        self.inner = nn.ModuleList(nn.Linear(width, 4 * width + 2 * state + heads) for _ in range(layers))
        self.mix = nn.ModuleList(nn.Conv1d(2 * width + 2 * state, 2 * width + 2 * state, 4, padding=3, groups=2 * width + 2 * state)
                                 for _ in range(layers))
        self.decay = nn.ParameterList(nn.Parameter(torch.rand(heads)) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def block(self, u, inner, mix, decay, out):
        width, length = 2 * u.shape[-1], u.shape[1]
        z, x, step = inner(u).split([width, width + 2 * self.state, self.heads], -1)
        x = F.silu(mix(x.transpose(1, 2))[..., :length].transpose(1, 2))
        x, b, c = x.split([width, self.state, self.state], -1)
        step = F.softplus(step)
        total = torch.cumsum(-step * torch.exp(decay), 1).transpose(1, 2)
        later = torch.tril(torch.ones(length, length, dtype=torch.bool))
        weight = torch.exp(torch.where(later, total[..., None] - total[..., None, :], -1e9))
        weight = weight * (c @ b.transpose(1, 2))[:, None]
        y = weight @ (x.unflatten(-1, (self.heads, -1)) * step[..., None]).transpose(1, 2)
        return out(y.transpose(1, 2).flatten(2) * F.silu(z))

    def forward(self, input_ids):
        x = self.tokens(input_ids)
        for norm, *layer in zip(self.norms, self.inner, self.mix, self.decay, self.out):
            x = x + self.block(norm(x), *layer)
        return self.head(self.norms[-1](x))


# ---- transformers and the like --------------------------------------------------------

class Hugging(nn.Module):
    """A model of transformers by its configuration; gives its logits."""
    def __init__(self, name, kind, **config):
        super().__init__()
        config = getattr(transformers, name + 'Config')(attn_implementation='eager', **config)
        self.net = getattr(transformers, name + kind)(config)

    def forward(self, **inputs):
        attention = 'eager' if torch.compiler.is_exporting() else 'sdpa'  # see ten.RelativeAttention
        for m in self.net.modules():
            if getattr(m, 'config', None) is not None and hasattr(m.config, '_attn_implementation'):
                m.config._attn_implementation = attention
        return self.net(**inputs, use_cache=False).logits if 'use_cache' in self.words() else self.net(**inputs).logits

    def words(self):
        return type(self.net).forward.__code__.co_varnames


class Mixer(nn.Module):
    def __init__(self, width=256, tokens=196, layers=6, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.tokens = nn.ModuleList(nn.Sequential(nn.Linear(tokens, width // 2), nn.GELU(), nn.Linear(width // 2, tokens))
                                    for _ in range(layers))
        self.channels = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                                      for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        for k, (tokens, channels) in enumerate(zip(self.tokens, self.channels)):
            x = x + tokens(self.norms[2 * k](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * k + 1](x))
        return self.head(self.norms[-1](x).mean(1))


class Conformer(nn.Module):
    def __init__(self, bands=80, width=144, layers=4, heads=4, kernel=31, classes=128):
        super().__init__()
        self.first = nn.Linear(bands, width)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            feed = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
                    for _ in range(2)]
            mix = nn.Sequential(nn.Conv1d(width, 2 * width, 1), nn.GLU(1), nn.Conv1d(width, width, kernel, 1, kernel // 2, groups=width),
                                nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1))
            self.layers.append(nn.ModuleDict({'feed1': feed[0], 'norm': nn.LayerNorm(width), 'attention': Attention(width, heads),
                                              'before': nn.LayerNorm(width), 'mix': mix, 'feed2': feed[1],
                                              'last': nn.LayerNorm(width)}))
        self.head = nn.Linear(width, classes)

    def forward(self, frames):
        x = self.first(frames)
        for layer in self.layers:
            x = x + 0.5 * layer['feed1'](x)
            x = x + layer['attention'](layer['norm'](x))
            x = x + layer['mix'](layer['before'](x).transpose(1, 2)).transpose(1, 2)
            x = layer['last'](x + 0.5 * layer['feed2'](x))
        return self.head(x)


class Experts(nn.Module):
    """A GPT whose MLPs are mixtures: each token is weighted over its best two experts, all of which are computed."""
    def __init__(self, words=1000, width=256, heads=4, layers=3, experts=4, length=128):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.attention = nn.ModuleList(Attention(width, heads, True, True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.gate = nn.ModuleList(nn.Linear(width, experts, bias=False) for _ in range(layers))
        self.up = nn.ParameterList(nn.Parameter(0.02 * torch.randn(experts, width, 2 * width)) for _ in range(layers))
        self.down = nn.ParameterList(nn.Parameter(0.02 * torch.randn(experts, 2 * width, width)) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def mixed(self, x, gate, up, down):
        scores = gate(x)
        best = torch.topk(scores, 2, -1)
        weight = torch.zeros_like(scores).scatter(-1, best.indices, torch.softmax(best.values, -1))
        y = F.gelu(x.flatten(0, 1) @ up) @ down
        return (y.unflatten(1, x.shape[:2]) * weight.permute(2, 0, 1)[..., None]).sum(0)

    def forward(self, input_ids):
        x = self.tokens(input_ids) + self.places.weight[:input_ids.shape[1]]
        for k, (attention, *layer) in enumerate(zip(self.attention, self.gate, self.up, self.down)):
            x = x + attention(self.norms[2 * k](x))
            x = x + self.mixed(self.norms[2 * k + 1](x), *layer)
        return self.head(self.norms[-1](x))


# ---- tables, points, graphs -----------------------------------------------------------

class Dlrm(nn.Module):
    def __init__(self, tables=8, words=20000, width=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(words, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, 256), nn.ReLU(), nn.Linear(256, 2))
        self.register_buffer('pairs', torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, numbers, categories):
        x = self.bottom(numbers)
        y = torch.stack([x] + [table(categories[:, k]) for k, table in enumerate(self.tables)], 1)
        products = (y @ y.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], 1))


class Pointnet(nn.Module):
    def __init__(self, classes=40):
        super().__init__()
        layers, channels = [], 3
        for out in (64, 64, 128, 512):
            layers += [nn.Conv1d(channels, out, 1), nn.BatchNorm1d(out), nn.ReLU()]
            channels = out
        self.layers = nn.Sequential(*layers)
        self.dense = nn.Sequential(nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, classes))

    def forward(self, points):
        return self.dense(self.layers(points).amax(2))


class Gcn(nn.Module):
    """Edges are pairs of nodes; messages are gathered and added up."""
    def __init__(self, features=128, width=128, classes=7):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((features, width), (width, width), (width, classes)))

    def forward(self, nodes, edges):
        x = nodes
        for k, layer in enumerate(self.layers):
            y = layer(x)
            x = y + torch.zeros_like(y).index_add(0, edges[1], y[edges[0]]) * 0.1
            x = F.relu(x) if k < 2 else x
        return x


class Nerf(nn.Module):
    def __init__(self, width=128, depth=6, waves=10):
        super().__init__()
        self.waves, size = waves, 3 + 6 * waves
        self.layers = nn.ModuleList(nn.Linear((size if k == 0 else width) + (size if k == 3 else 0), width) for k in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, points):
        angle = (points[..., None] * 2.0 ** torch.arange(self.waves)).flatten(1)
        first = x = torch.cat([points, torch.sin(angle), torch.cos(angle)], 1)
        for k, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, first], 1) if k == 3 else x))
        return torch.sigmoid(self.head(x))


class Tabular(nn.Module):
    """A transformer over a token for each number and category (FT-Transformer)."""
    def __init__(self, numbers=16, categories=8, words=100, width=64, layers=3, heads=4):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(0.1 * torch.randn(numbers, width)) for _ in range(2))
        self.tables = nn.Embedding(categories * words, width)
        self.register_buffer('offsets', words * torch.arange(categories), persistent=False)
        self.first = nn.Parameter(0.1 * torch.randn(1, 1, width))
        self.layers = nn.ModuleList(Before(width, heads, False, 'none') for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 2)

    def forward(self, numbers, categories):
        x = torch.cat([self.first.expand(numbers.shape[0], -1, -1), numbers[..., None] * self.weight + self.bias,
                       self.tables(categories + self.offsets)], 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(F.relu(self.norm(x[:, 0])))


class Autoencoder(nn.Sequential):
    def __init__(self, sizes=(784, 512, 256, 32, 256, 512, 784)):
        layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
        super().__init__(*layers[:-1], nn.Sigmoid())

    def forward(self, pixels):
        return super().forward(pixels)


# ---- models and batches ---------------------------------------------------------------

def images(batch, size=224, classes=1000):
    return {'pixels': ((batch, 3, size, size), FLOATS)}, (batch,), classes


def tokens(batch, length, words):
    return {'input_ids': ((batch, length), words)}, (batch, length), words


def seen(name, **more):
    return lambda: Seen(getattr(torchvision.models, name)(**more))


class Seen(nn.Module):
    """A model of torchvision."""
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, pixels):
        return self.net(pixels)


QUIET = {'hidden_dropout_prob': 0.0, 'attention_probs_dropout_prob': 0.0}
SMALL = {'hidden_size': 256, 'num_hidden_layers': 4, 'num_attention_heads': 4, 'intermediate_size': 1024, 'vocab_size': 8000,
         'max_position_embeddings': 256}
WHISPER = {'vocab_size': 4000, 'd_model': 256, 'encoder_layers': 3, 'decoder_layers': 3, 'encoder_attention_heads': 4,
           'decoder_attention_heads': 4, 'encoder_ffn_dim': 1024, 'decoder_ffn_dim': 1024, 'max_source_positions': 250,
           'max_target_positions': 64, 'dropout': 0.0, 'pad_token_id': 0, 'bos_token_id': 1, 'eos_token_id': 2,
           'decoder_start_token_id': 1, 'begin_suppress_tokens': None}


def hugging(name, kind, **config):
    return lambda: Hugging(name, kind, **config)


# NAME: (what makes it, {input: (shape, classes)}, shape of the labels, classes)
MODELS = {
    'mobilenet-v2': (seen('mobilenet_v2'), *images(8)),
    'mobilenet-v3': (seen('mobilenet_v3_large'), *images(8)),
    'efficientnet-b0': (seen('efficientnet_b0'), *images(4)),
    'shufflenet-v2': (seen('shufflenet_v2_x1_0'), *images(8)),
    'mnasnet': (seen('mnasnet1_0'), *images(8)),
    'convnext-tiny': (seen('convnext_tiny'), *images(2)),
    'densenet121': (seen('densenet121'), *images(2)),
    'googlenet': (seen('googlenet', aux_logits=False, init_weights=False), *images(4)),
    'resnext50': (seen('resnext50_32x4d'), *images(2)),
    'regnet-y-400mf': (seen('regnet_y_400mf'), *images(8)),
    'squeezenet': (seen('squeezenet1_1'), *images(8)),
    'vgg11-bn': (seen('vgg11_bn'), *images(2)),
    'alexnet': (seen('alexnet'), *images(8)),
    'swin-t': (seen('swin_t'), *images(2)),
    'unet': (Unet, {'pixels': ((4, 3, 128, 128), FLOATS)}, (4, 128, 128), 4),
    'vae': (Vae, {'pixels': ((16, 3, 64, 64), FLOATS), 'noise': ((16, 64), FLOATS)}, (16, 3, 64, 64), FLOATS),
    'dcgan': (Generator, {'noise': ((32, 100, 1, 1), FLOATS)}, (32, 3, 64, 64), FLOATS),
    'edsr': (Edsr, {'pixels': ((4, 3, 48, 48), FLOATS)}, (4, 3, 96, 96), FLOATS),
    'c3d': (C3d, {'video': ((2, 3, 16, 64, 64), FLOATS)}, (2,), 101),
    'm5': (M5, {'wave': ((16, 1, 8000), FLOATS)}, (16,), 35),
    'wavenet': (Wavenet, *tokens(4, 2000, 256)),
    'groupnorm': (lambda: Normed(lambda n: nn.GroupNorm(8, n)), *images(32, 32, 10)),
    'instancenorm': (lambda: Normed(lambda n: nn.InstanceNorm2d(n, affine=True)), *images(32, 32, 10)),
    'style': (Style, {'pixels': ((1, 3, 128, 128), FLOATS)}, (1, 3, 128, 128), FLOATS),
    'convlstm': (Convlstm, {'video': ((4, 8, 1, 32, 32), FLOATS)}, (4, 1, 32, 32), FLOATS),
    'digits': (Digits, {'pixels': ((64, 1, 28, 28), FLOATS)}, (64,), 10),
    'resnet-cifar': (lambda: Cifar(), *images(64, 32, 10)),
    'gru': (lambda: Recurrent(nn.GRU), *tokens(16, 64, 5000)),
    'bilstm': (lambda: Recurrent(nn.LSTM, bidirectional=True, classes=20), {'input_ids': ((16, 64), 5000)}, (16, 64), 20),
    'rnn': (lambda: Recurrent(nn.RNN, classes=64, num_layers=2), {'input_ids': ((16, 64), 5000)}, (16, 64), 64),
    'mamba2': (Mamba, *tokens(4, 128, 1000)),
    'mixer': (Mixer, *images(8)),
    'llama': (hugging('Llama', 'ForCausalLM', **SMALL, num_key_value_heads=2), *tokens(4, 128, 8000)),
    'phi': (hugging('Phi', 'ForCausalLM', **SMALL, partial_rotary_factor=0.5), *tokens(4, 128, 8000)),
    'qwen3': (hugging('Qwen3', 'ForCausalLM', **SMALL, num_key_value_heads=2, head_dim=64), *tokens(4, 128, 8000)),
    'roberta': (hugging('Roberta', 'ForMaskedLM', **{**SMALL, **QUIET}), *tokens(8, 128, 8000)),
    'deberta-v2': (hugging('DebertaV2', 'ForMaskedLM', **{**SMALL, **QUIET}, relative_attention=True, pos_att_type=['p2c', 'c2p'],
                           position_buckets=64), *tokens(4, 128, 8000)),
    'distilbert': (hugging('DistilBert', 'ForMaskedLM', dim=256, n_layers=3, n_heads=4, hidden_dim=1024, vocab_size=8000, dropout=0.0,
                           attention_dropout=0.0), *tokens(8, 128, 8000)),
    'albert': (hugging('Albert', 'ForMaskedLM', **{**SMALL, **QUIET}, embedding_size=128), *tokens(8, 128, 8000)),
    'electra': (hugging('Electra', 'ForTokenClassification', **{**SMALL, **QUIET}, embedding_size=128, num_labels=9),
                {'input_ids': ((8, 128), 8000)}, (8, 128), 9),
    'whisper': (hugging('Whisper', 'ForConditionalGeneration', **WHISPER),
                {'input_features': ((2, 80, 500), FLOATS), 'decoder_input_ids': ((2, 64), 4000)}, (2, 64), 4000),
    'conformer': (Conformer, {'frames': ((4, 200, 80), FLOATS)}, (4, 200), 128),
    'experts': (Experts, *tokens(4, 128, 1000)),
    'dlrm': (Dlrm, {'numbers': ((512, 13), FLOATS), 'categories': ((512, 8), 20000)}, (512,), 2),
    'pointnet': (Pointnet, {'points': ((8, 3, 1024), FLOATS)}, (8,), 40),
    'gcn': (Gcn, {'nodes': ((2708, 128), FLOATS), 'edges': ((2, 10556), 2708)}, (2708,), 7),
    'nerf': (Nerf, {'points': ((8192, 3), FLOATS)}, (8192, 4), FLOATS),
    'tabular': (Tabular, {'numbers': ((128, 16), FLOATS), 'categories': ((128, 8), 100)}, (128,), 2),
    'autoencoder': (Autoencoder, {'pixels': ((256, 784), FLOATS)}, (256, 784), FLOATS),
}


class Cifar(nn.Module):
    """ResNet-20."""
    def __init__(self, classes=10):
        super().__init__()
        layers, channels = [ten.normed(3, 16, 3, 1), nn.ReLU()], 16
        for width, stride in ((16, 1), (16, 1), (16, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1)):
            layers.append(Residual(channels, (width, 3, stride), (width, 3, 1)))
            channels = width
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, pixels):
        return self.head(self.layers(pixels).mean((2, 3)))


def make(name):
    """The module, in training mode, without dropout."""
    net = ten.make(name, MODELS)
    for m in net.modules():
        if isinstance(m, (nn.Dropout, torchvision.ops.StochasticDepth)):
            m.p = 0.0
    return net


if __name__ == '__main__':
    ten.main(make, MODELS, MODELS)
