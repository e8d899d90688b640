"""Writes the small models beside it, by PyTorch's exporter. Needs torch and onnx; the tests need only the files."""
import json
import onnx
import torch
from torch import nn


class Tagger(nn.Module):
    """Tokens in, one score a token and tag out; dropout is drawn while training."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(96, 8)
        self.norm = nn.LayerNorm(8)
        self.dropout = nn.Dropout(0.25)
        self.out = nn.Linear(8, 5)

    def forward(self, ids):
        return self.out(self.dropout(torch.relu(self.norm(self.embedding(ids)))))


def export(model, example, path, **names):
    torch.onnx.export(model.train(), example, path, dynamo=False, opset_version=17, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, **names)

def golden(model, inputs, outputs):
    """What goldens.json holds of a model, as its _doc says."""
    out = model.double().eval()(*inputs)
    values = out.flatten()
    weights = torch.cos(0.37 * torch.arange(values.numel(), dtype=torch.double)) / values.numel()
    loss = (values * weights).sum()
    loss.backward()
    spread = sorted({j * (values.numel() - 1) // 15 for j in range(16)})
    grads = {}
    for name, p in model.named_parameters():
        g = p.grad.flatten()
        n = g.numel()
        at = range(n) if n <= 64 else [k * (n - 1) // 63 for k in range(0, 64, 3 if n <= 4096 else 1)]
        grads[name] = [g.norm().item(), g.sum().item(), g[:3].tolist(), g.abs().sum().item(), g[list(at)].tolist()]
    return {'outputs': [[outputs, list(out.shape), values.sum().item(), values.norm().item(), values[spread].tolist()]],
            'loss': loss.item(), 'grads': grads}


torch.manual_seed(3)
mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
tagger = Tagger()
export(mlp, torch.zeros(2, 4), 'mlp.onnx', input_names=['x'], output_names=['logits'],
       dynamic_axes={'x': {0: 'batch'}, 'logits': {0: 'batch'}})
export(tagger, torch.zeros(2, 6, dtype=torch.long), 'tagger.onnx', input_names=['ids'], output_names=['logits'],
       dynamic_axes={'ids': {0: 'batch', 1: 'length'}, 'logits': {0: 'batch', 1: 'length'}})
onnx.save(onnx.load('mlp.onnx'), 'external.onnx', save_as_external_data=True, location='external.bin', size_threshold=0)

x = torch.sin(0.7 * torch.arange(8, dtype=torch.double) + 0.3).float().double().view(2, 4)
ids = (3 + 7 * torch.arange(12) % 90).view(2, 6)
mlp_golden = {'inputs': {'x': [2, 4]}, **golden(mlp, [x], 'logits')}
goldens = {'_doc': "this project's own models, by PyTorch in float64; outputs: [name, shape, sum, L2, values at flat indices "
                   'floor(j (n-1) / 15), j = 0..15, without duplicates], grads: [L2, sum, first 3, sum of absolute values, '
                   "samples]; inputs: sin(0.7 i + 0.3), or 3 + (7 i) % 90; loss: sum of out[i] * "
                   'cos(0.37 i) / numel(out); Dropout = identity',
           'mlp.onnx': mlp_golden, 'external.onnx': mlp_golden,
           'tagger.onnx': {'inputs': {'ids': [2, 6]}, **golden(tagger, [ids], 'logits')}}
json.dump(goldens, open('goldens.json', 'w'), indent=1)
