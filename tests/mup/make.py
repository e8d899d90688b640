"""make.py: how the files beside it were made: eight networks in several widths as ONNX files (exports.tar.xz), and the
multipliers that microsoft/mup gives their parameters (multipliers.json).
    pip install torch==2.13.0 onnx onnxscript mup==1.0.0 pyyaml && python3 make.py
Weights are cut off into zeros.bin, which is not kept: nothing reads them, and the tests put a file of zeros in its place."""
import json
import os
import subprocess
import sys

import mup
import onnx
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'exports'))
from outside import move_weights

BASE, WIDTHS = 16, (16, 32, 64, 128)


class Mlp(nn.Module):
    def __init__(self, w, readout):
        super().__init__()
        self.first, self.hidden, self.last = nn.Linear(12, w), nn.Linear(w, 2 * w), readout(2 * w, 10)

    def forward(self, x):
        return self.last(F.relu(self.hidden(F.relu(self.first(x)))))


class Resnet(nn.Module):
    def __init__(self, w, readout):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, w, 3, padding=1, bias=False), nn.BatchNorm2d(w)
        self.conv1, self.norm1 = nn.Conv2d(w, w, 3, padding=1, bias=False), nn.BatchNorm2d(w)
        self.depthwise = nn.Conv2d(w, w, 3, padding=1, groups=w)
        self.conv2, self.norm2 = nn.Conv2d(w, 2 * w, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * w)
        self.shortcut = nn.Conv2d(w, 2 * w, 1, 2)
        self.head = readout(2 * w, 10)

    def forward(self, image):
        x = F.relu(self.stem_norm(self.stem(image)))
        y = self.depthwise(F.relu(self.norm1(self.conv1(x))))
        x = F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, w, heads, causal):
        super().__init__()
        self.causal, self.heads, self.ln1, self.ln2 = causal, heads, nn.LayerNorm(w), nn.LayerNorm(w)
        self.qkv, self.proj, self.fc, self.out = nn.Linear(w, 3 * w), nn.Linear(w, w), nn.Linear(w, 4 * w), nn.Linear(4 * w, w)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        x = x + self.proj(y)
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, w, readout, tied):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(40, w), nn.Embedding(8, w)
        self.blocks, self.ln = nn.ModuleList(Block(w, 4, True) for _ in range(2)), nn.LayerNorm(w)
        self.head = tied(self.tokens.weight, bias=False) if tied else readout(w, 40, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Encoder(nn.Module):
    def __init__(self, w, readout):
        super().__init__()
        self.tokens = nn.Embedding(40, w)
        self.layer = nn.TransformerEncoderLayer(w, 4, 2 * w, 0.0, batch_first=True)
        self.head = readout(w, 3)

    def forward(self, ids):
        return self.head(self.layer(self.tokens(ids))[:, 0])


class Lstm(nn.Module):
    def __init__(self, w, readout):
        super().__init__()
        self.tokens, self.rnn, self.head = nn.Embedding(40, w), nn.LSTM(w, 2 * w, 2, batch_first=True), readout(2 * w, 40)

    def forward(self, ids):
        return self.head(self.rnn(self.tokens(ids))[0])


class Vit(nn.Module):
    def __init__(self, w, readout):
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, w, 4, 4), nn.Parameter(torch.randn(1, 1, w))
        self.positions = nn.Parameter(torch.randn(1, 5, w))
        self.block, self.ln, self.head = Block(w, 4, False), nn.LayerNorm(w), readout(w, 10)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.ln(self.block(x))[:, 0])


class Llama(nn.Module):
    """Heads of a fixed size, so that their number grows; grouped queries."""

    def __init__(self, w, readout):
        super().__init__()
        self.tokens, self.norm1, self.norm2, self.norm = nn.Embedding(40, w), nn.RMSNorm(w), nn.RMSNorm(w), nn.RMSNorm(w)
        self.q, self.o = nn.Linear(w, w, bias=False), nn.Linear(w, w, bias=False)
        self.k, self.v = nn.Linear(w, w // 2, bias=False), nn.Linear(w, w // 2, bias=False)
        self.gate, self.up = nn.Linear(w, 3 * w, bias=False), nn.Linear(w, 3 * w, bias=False)
        self.down, self.head = nn.Linear(3 * w, w, bias=False), readout(w, 40, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        y = self.norm1(x)
        q, k, v = (m(y).unflatten(-1, (-1, 4)).transpose(1, 2) for m in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return self.head(self.norm(x + self.down(F.silu(self.gate(y)) * self.up(y))))


class Tied(nn.Linear):
    def __init__(self, weight, bias):
        super().__init__(*weight.shape[::-1], bias=bias)
        self.weight = weight


IMAGE, IDS = torch.randn(2, 3, 8, 8), torch.randint(0, 40, (2, 8))
NETS = {  # of the width, the class of the readout, and that of a tied one
    'mlp': (lambda w, r, t: Mlp(w, r), torch.randn(8, 12), 'x'),
    'resnet': (lambda w, r, t: Resnet(w, r), IMAGE, 'image'),
    'gpt': (lambda w, r, t: Gpt(w, r, None), IDS, 'ids'),
    'gpt_tied': (lambda w, r, t: Gpt(w, r, t), IDS, 'ids'),
    'encoder': (lambda w, r, t: Encoder(w, r), IDS, 'ids'),
    'lstm': (lambda w, r, t: Lstm(w, r), IDS, 'ids'),
    'vit': (lambda w, r, t: Vit(w, r), IMAGE, 'image'),
    'llama': (lambda w, r, t: Llama(w, r), IDS, 'ids'),
}


def cut_off(path):
    model = onnx.load(path)
    for node in model.graph.node:
        node.doc_string = ''
        kept = [p for p in node.metadata_props if p.key in ('pkg.torch.onnx.fx_node', 'pkg.torch.onnx.name_scopes')]
        kept = [(p.key, p.value) for p in kept]
        del node.metadata_props[:]
        for key, value in kept:
            node.metadata_props.add(key=key, value=value)
    del model.graph.value_info[:]
    end = move_weights(model, 'zeros.bin')
    with open(path, 'wb') as f:
        f.write(model.SerializeToString())
    return end


def rates(net, optimizer):
    """Returns {id: (rate, decay)} of a parameter-wise optimizer of mup at rate 1 and decay 1."""
    made = optimizer(list(net.parameters()), lr=1.0, weight_decay=1.0)
    return {id(p): (g['lr'], g['weight_decay']) for g in made.param_groups for p in g['params']}


def multipliers(make, width):
    """Returns what mup does to each parameter of the network at a width, tuned at the base width."""
    net, base, delta = (make(w, mup.MuReadout, mup.MuSharedReadout) for w in (width, BASE, 2 * BASE))
    mup.set_base_shapes(net, base, delta=delta)
    adam, sgd = rates(net, mup.MuAdamW), rates(net, mup.MuSGD)
    outputs = {id(m.weight): 1 / m.width_mult() for m in net.modules() if isinstance(m, mup.MuReadout)}
    scales = []
    mup.init._no_grad_normal_ = lambda tensor, mean, std: scales.append(std)
    rows = {}
    for name, p in net.named_parameters(remove_duplicate=False):
        mup.init.normal_(p)
        rows[name] = {'init': scales.pop(), 'adam': adam[id(p)][0], 'adam_decay': adam[id(p)][1], 'sgd': sgd[id(p)][0],
                      'sgd_decay': sgd[id(p)][1], 'output': outputs.get(id(p), 1.0)}
    return rows


def main():
    recorded, files, most = {}, [], 0
    for name, (make, example, argument) in NETS.items():
        recorded[name] = {}
        for width in WIDTHS:
            path = f'{name}_{width}.onnx'
            net = make(width, nn.Linear, Tied).train()
            torch.onnx.export(net, (example,), path, input_names=[argument], output_names=['logits'], dynamo=True,
                              optimize=False, external_data=False, verbose=False)
            most = max(most, cut_off(path))
            files.append(path)
            names = {t.name for t in onnx.load(path, load_external_data=False).graph.initializer}
            rows = {key: row for key, row in multipliers(make, width).items() if key in names}
            assert len(rows) == len(list(net.parameters())), path
            recorded[name][width] = rows
    with open('multipliers.json', 'w') as f:
        json.dump({'base': BASE, 'multipliers': recorded}, f, indent=0)
        f.write('\n')
    subprocess.run(['tar', '--sort=name', '--owner=0', '--group=0', '--mtime=2026-01-01', '-cJf', 'exports.tar.xz', *files], check=True)
    print('zeros.bin has', most, 'bytes')


sys.exit(main())
