"""Writes the models folded_*.onnx beside it but folded_tables.onnx: networks whose weights the exporters of PyTorch
(2.15) fold into constants, and constants that may be taken for weights. Needs torch and onnxscript. The tests need only
the files."""
import math
import onnx, onnx_ir, torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations


class Tcn(nn.Module):
    """A temporal convolutional network, weight-normalized as its authors have it."""
    def __init__(self, norm=parametrizations.weight_norm):
        super().__init__()
        self.conv1, self.conv2 = norm(nn.Conv1d(4, 8, 3, padding=2)), norm(nn.Conv1d(8, 8, 3, padding=4, dilation=2))
        self.down, self.out = nn.Conv1d(4, 8, 1), nn.Linear(8, 3)

    def forward(self, x):
        h = self.conv1(x)[:, :, :x.shape[2]].relu()
        h = self.conv2(h)[:, :, :x.shape[2]].relu()
        return self.out((h + self.down(x)).relu()[:, :, -1])


class Beit(nn.Module):
    """One block of attention over a window of 3x3 patches, with BEiT's relative position bias."""
    def __init__(self, d=8, heads=2, side=3):
        super().__init__()
        self.heads, self.h = heads, d // heads
        self.patch, self.norm = nn.Linear(4, d), nn.LayerNorm(d)
        self.query, self.key, self.value, self.proj, self.head = (nn.Linear(d, d) for _ in range(5))
        self.relative_position_bias_table = nn.Parameter(torch.randn((2 * side - 1) ** 2, heads) * 0.2)
        at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None, :] + side - 1
        self.register_buffer("relative_position_index", apart[0] * (2 * side - 1) + apart[1])

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.h).transpose(1, 2)

    def forward(self, x):
        x = self.patch(x)
        y, n = self.norm(x), x.shape[1]
        s = self.split(self.query(y)) @ self.split(self.key(y)).transpose(-1, -2) / math.sqrt(self.h)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        s = s + bias.view(n, n, self.heads).permute(2, 0, 1).contiguous().unsqueeze(0)
        y = (s.softmax(-1) @ self.split(self.value(y))).transpose(1, 2).reshape(x.shape)
        return self.head((x + self.proj(y)).mean(1))


class Sound(nn.Module):
    """What people keep in buffers, which the older exporter does not tell from parameters: the mean and deviation of
    inputs, a short-time Fourier transform, a bank of filters."""
    def __init__(self, n=16, bands=5):
        super().__init__()
        turns = torch.arange(n // 2 + 1)[:, None] * torch.arange(n)[None] * 2 * math.pi / n
        window, middle = torch.hann_window(n), torch.arange(1, bands + 1)
        self.register_buffer("fourier", torch.cat([turns.cos() * window, -turns.sin() * window])[:, None])
        self.register_buffer("bank", (1 - (torch.arange(n // 2 + 1)[:, None] - middle).abs() / 2).clamp(min=0))
        self.register_buffer("mean", torch.tensor([[[0.1]], [[0.2]]]))
        self.register_buffer("deviation", torch.tensor([[[0.4]], [[0.5]]]))
        self.mix, self.out = nn.Conv1d(2, 1, 3, padding=1), nn.Linear(bands, 3)

    def forward(self, x):
        x = self.mix((x - self.mean) / self.deviation)
        z = F.conv1d(x, self.fourier, stride=8)
        half = z.shape[1] // 2
        power = z[:, :half].pow(2) + z[:, half:].pow(2)
        return self.out(torch.log(power.transpose(1, 2) @ self.bank + 1e-3)).mean(1)


KEEP = ("pkg.torch.onnx.fx_node", "pkg.onnxscript.optimizer.folded_from",
        "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.torch.export.ExportedProgram.graph_signature")


def strip(model):
    """Of the metadata what amosc reads."""
    g = model.graph
    for part in [g, *g.node, *g.value_info, *g.input, *g.output]:
        kept = [p for p in part.metadata_props if p.key in KEEP]
        del part.metadata_props[:]
        part.metadata_props.extend(kept)
    del model.metadata_props[:]
    return model


def export_script(name, net, x):
    torch.onnx.export(net.eval(), (x,), f"folded_{name}_script.onnx", dynamo=False, opset_version=17, input_names=["x"],
                      output_names=["y"], dynamic_axes={"x": {0: "batch"}})


def export_dynamo(name, net, x):
    program = torch.onnx.export(net.eval(), (x,), dynamo=True, opset_version=20, input_names=["x"], output_names=["y"])
    program.optimize()
    onnx.save(strip(onnx_ir.to_proto(program.model)), f"folded_{name}_dynamo.onnx")


torch.manual_seed(7)
for export in (export_script, export_dynamo):
    export("tcn", Tcn(), torch.randn(2, 4, 9))
    export("beit", Beit(), torch.randn(2, 9, 4))
    export("sound", Sound(), torch.randn(2, 2, 64))
export_dynamo("spectral", Tcn(parametrizations.spectral_norm), torch.randn(2, 4, 9))
