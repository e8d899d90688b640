"""Writes the small models beside it, by PyTorch's exporter. Needs torch and onnx; the tests need only the files."""
import json
import onnx
import torch
from onnx import parser
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


class Masked(nn.Module):
    """Rows chosen by the data: classified, in their cross entropy, written back, compared with each other."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.out = nn.Linear(8, 5)

    def entropy(self, logits, labels):
        return nn.functional.cross_entropy(logits, labels)

    def forward(self, x):
        keep = x[..., 0] > 0
        hidden = torch.relu(self.inner(x))[keep]
        loss = self.entropy(self.out(hidden), x[keep].argmax(-1) % 5)
        weights = torch.softmax(hidden @ hidden.t() / 3, -1)
        mixed = (weights @ hidden).pow(2).sum() / hidden.shape[0]
        row = x[..., 1]
        return loss + mixed + torch.where(row > 0.5, row, row * row)[row > 0].mean()


class Picked(Masked):
    """The same in smaller steps."""

    def entropy(self, logits, labels):
        return -torch.log_softmax(logits, -1).gather(1, labels[:, None]).mean()


class Written(Masked):
    """Places chosen by the data are written to."""

    def forward(self, x):
        y = self.out(torch.relu(self.inner(x))).mean(-1)
        z = torch.zeros_like(y)
        z[y > 0] = y[y > 0] * 2
        return (z * z).mean() + torch.masked_select(y, x[..., 0] > 0).std()


def export(model, example, path, **names):
    torch.onnx.export(model.train(), example, path, dynamo=False, opset_version=17, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, **names)

def golden(model, inputs, outputs, turned={}):
    """What goldens.json holds of a model, as its _doc says. `turned`: parameters that the file holds transposed, as."""
    out = model.double().eval()(*inputs)
    values = out.flatten()
    weights = torch.cos(0.37 * torch.arange(values.numel(), dtype=torch.double)) / values.numel()
    loss = (values * weights).sum()
    loss.backward()
    spread = sorted({j * (values.numel() - 1) // 15 for j in range(16)})
    grads = {}
    for name, p in model.named_parameters():
        g = (p.grad.T if name in turned else p.grad).flatten()
        n = g.numel()
        at = range(n) if n <= 64 else [k * (n - 1) // 63 for k in range(0, 64, 3 if n <= 4096 else 1)]
        grads[turned.get(name, name)] = [g.norm().item(), g.sum().item(), g[:3].tolist(), g.abs().sum().item(), g[list(at)].tolist()]
    return {'outputs': [[outputs, list(out.shape), values.sum().item(), values.norm().item(), values[spread].tolist()]],
            'loss': loss.item(), 'grads': grads}


# Results that are as many as the data say.
SELECT = """<ir_version: 8, opset_import: ["": 17]>
select (float[4, 3] x) => (float[n, 3] rows, int64[2, k] places, float[n, n] products, int64[n] numbers, float mean)
<float zero = {0}, int64 start = {0}, int64 one = {1}>
{
  positive = Greater(x, zero)
  column = Gather<axis = 1>(positive, start)
  rows = Compress<axis = 0>(x, column)
  places = NonZero(positive)
  turned = Transpose(rows)
  products = MatMul(rows, turned)
  shape = Shape(rows)
  count = Gather(shape, start)
  numbers = Range(start, count, one)
  mean = ReduceMean<keepdims = 0>(rows)
}"""
# A head that finds: the best boxes that overlap none better, each with its class and score.
DETECT = """<ir_version: 8, opset_import: ["": 17]>
detect (float[1, 9, 4] boxes, float[1, 2, 9] scores) => (float[n, 6] found)
<int64 most = {3}, float overlap = {0.5}, float least = {0.1}, int64 zero = {0}, int64[1] box = {2}, int64[1] kind = {1},
 int64[2] kind_box = {1, 2}>
{
  chosen = NonMaxSuppression(boxes, scores, most, overlap, least)
  at = Gather<axis = 1>(chosen, box)
  class = Gather<axis = 1>(chosen, kind)
  all = Gather<axis = 0>(boxes, zero)
  where = GatherND(all, at)
  each = Gather<axis = 0>(scores, zero)
  place = Gather<axis = 1>(chosen, kind_box)
  score = GatherND(each, place)
  score_column = Unsqueeze(score, kind)
  class_column = Cast<to = 1>(class)
  found = Concat<axis = 1>(where, class_column, score_column)
}"""
# Rows that the data choose, with a rim up to a fixed number, as torch exports F.pad.
PADDED = """<ir_version: 8, opset_import: ["": 17]>
padded (float[4, 3] x) => (float[4, 3] zeros, float[n, 3] edges)
<float zero = {0}, int64 start = {0}, int64 most = {4}, int64[1] first = {0}, int64[3] none = {0, 0, 0}, int64[2] pairs = {-1, 2},
 int64[1] last = {-1}, int64[1] lowest = {-9223372036854775807}, int64[2] size = {4, 3}>
{
  positive = Greater(x, zero)
  column = Gather<axis = 1>(positive, start)
  rows = Compress<axis = 0>(x, column)
  shape = Shape(rows)
  count = Gather(shape, start)
  missing = Sub(most, count)
  rim = Unsqueeze(missing, first)
  listed = Concat<axis = 0>(none, rim)
  paired = Reshape(listed, pairs)
  reversed = Slice(paired, last, lowest, first, last)
  sides = Transpose(reversed)
  pads = Reshape(sides, last)
  all = Pad(rows, pads)
  zeros = Reshape(all, size)
  edges = Pad<mode = "edge">(rows, pads)
}"""
for name, text in [('select', SELECT), ('detect', DETECT), ('padded', PADDED)]:
    model = parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, name + '.onnx')

torch.manual_seed(5)
masked, picked, written = Masked(), Picked(), Written()
places = torch.sin(0.7 * torch.arange(72, dtype=torch.double) + 0.3).float().view(4, 3, 6)
export(masked, places, 'masked.onnx', input_names=['x'], output_names=['loss'])
export(written, places, 'written.onnx', input_names=['x'], output_names=['loss'])
torch.onnx.export(picked, (places,), 'picked.onnx', dynamo=True, external_data=False, input_names=['x'],
                  output_names=['loss'])

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
places = places.double()
selecting = {name + '.onnx': {'inputs': {'x': [4, 3, 6]}, **golden(model, [places], 'loss', turned)}
             for name, model, turned in [('masked', masked, {}), ('picked', picked, {'inner.weight': 'val_1'}),
                                         ('written', written, {})]}
cnn = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(),
                    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 4))
export(cnn, torch.zeros(2, 1, 8, 8), 'cnn.onnx', input_names=['x'], output_names=['logits'],
       dynamic_axes={'x': {0: 'batch'}, 'logits': {0: 'batch'}})
image = torch.sin(0.7 * torch.arange(128, dtype=torch.double) + 0.3).float().double().view(2, 1, 8, 8)
mlp_golden = {'inputs': {'x': [2, 4]}, **golden(mlp, [x], 'logits')}
goldens = {'_doc': "this project's own models, by PyTorch in float64; outputs: [name, shape, sum, L2, values at flat indices "
                   'floor(j (n-1) / 15), j = 0..15, without duplicates], grads: [L2, sum, first 3, sum of absolute values, '
                   "samples]; inputs: sin(0.7 i + 0.3), or 3 + (7 i) % 90; loss: sum of out[i] * "
                   'cos(0.37 i) / numel(out); Dropout = identity',
           'mlp.onnx': mlp_golden, 'external.onnx': mlp_golden,
           'tagger.onnx': {'inputs': {'ids': [2, 6]}, **golden(tagger, [ids], 'logits')}, **selecting,
           'cnn.onnx': {'inputs': {'x': [2, 1, 8, 8]}, **golden(cnn, [image], 'logits')}}
json.dump(goldens, open('goldens.json', 'w'), indent=1)
