"""Runs the nodes of an ONNX file one by one as PyTorch's functions, as a module whose parameters are the trained initializers.

Converters such as onnx2torch know neither the operators nor the types that today's exporters write, so this is a table of
operators. What does not depend on the inputs' values, such as computed shapes, is kept from the first call.
"""
import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F
import peer


def ints(x):
    return [int(i) for i in x.reshape(-1)]


def same(function):
    """An operator without attributes whose inputs are those of the function."""
    return lambda at, *inputs: function(*inputs)


def folded(function):
    """A reduction, its axes an input or an attribute."""
    def run(at, x, axes=None):
        axes = at.get('axes') if axes is None else ints(axes)
        return function(x, tuple(axes or range(x.dim())), bool(at.get('keepdims', 1)))
    return run


def windows(at, rank):
    """(stride, padding, dilation)"""
    if at.get('auto_pad', b'NOTSET') not in (b'NOTSET', b'VALID'):
        peer.fail('convolutions and pooling with auto_pad are not supported')
    pads = at.get('pads', [0] * 2 * rank)
    if pads[:rank] != pads[rank:]:
        peer.fail('unequal padding is not supported')
    return at.get('strides', [1] * rank), pads[:rank], at.get('dilations', [1] * rank)


def conv(at, x, w, bias=None):
    stride, padding, dilation = windows(at, x.dim() - 2)
    return (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3](x, w, bias, stride, padding, dilation, at.get('group', 1))


def max_pool(at, x):
    stride, padding, dilation = windows(at, x.dim() - 2)
    return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.dim() - 3](x, at['kernel_shape'], stride, padding, dilation,
                                                                   bool(at.get('ceil_mode', 0)))


def average_pool(at, x):
    stride, padding, _ = windows(at, x.dim() - 2)
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.dim() - 3]
    return pool(x, at['kernel_shape'], stride, padding, bool(at.get('ceil_mode', 0)), bool(at.get('count_include_pad', 0)))


def batch_norm(at, x, scale, bias, mean, variance):
    """By the batch, as amosc trains it whatever mode the file has."""
    return F.batch_norm(x, mean, variance, scale, bias, True, 1 - at.get('momentum', 0.9), at.get('epsilon', 1e-5))


def layer_norm(at, x, scale, bias=None):
    shape = x.shape[at.get('axis', -1):]
    return F.layer_norm(x, shape, scale.expand(shape), bias, at.get('epsilon', 1e-5))


def gemm(at, a, b, c=None):
    a, b = (x.t() if at.get(key) else x for x, key in ((a, 'transA'), (b, 'transB')))
    if c is None:
        return at.get('alpha', 1.0) * (a @ b)
    return torch.addmm(c, a, b, beta=at.get('beta', 1.0), alpha=at.get('alpha', 1.0))


def lstm(at, x, w, r, bias=None, lengths=None, first=None, cell=None, peepholes=None):
    """torch orders the gates i f g o, ONNX i o f c."""
    if at.get('direction', b'forward') != b'forward' or at.get('layout') or lengths is not None or peepholes is not None:
        peer.fail('LSTM is supported forward, without lengths and peepholes')
    gates = lambda t: torch.cat([t.chunk(4)[k] for k in (0, 2, 3, 1)])
    hidden = r.shape[2]
    bias = torch.zeros(8 * hidden) if bias is None else bias[0]
    zeros = torch.zeros(1, x.shape[1], hidden)
    state = (zeros if first is None else first, zeros if cell is None else cell)
    weights = [gates(w[0]), gates(r[0]), gates(bias[:4 * hidden]), gates(bias[4 * hidden:])]
    y, h, c = torch.lstm(x, state, weights, True, 1, 0.0, True, False, False)
    return y.unsqueeze(1), h, c


def reshape(at, x, shape):
    sizes = ints(shape)
    if not at.get('allowzero'):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return x.reshape(sizes)


def cut(at, x, starts, ends, axes=None, steps=None):
    axes = range(len(starts)) if axes is None else ints(axes)
    steps = [1] * len(starts) if steps is None else ints(steps)
    for start, end, axis, step in zip(ints(starts), ints(ends), axes, steps):
        if step < 0:
            peer.fail('Slice with a negative step is not supported')
        x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
    return x


def split(at, x, sizes=None):
    axis = at.get('axis', 0)
    if sizes is None:
        count = at['num_outputs']
        return x.split(-(-x.shape[axis] // count), axis)
    return x.split(ints(sizes), axis)


def gather(at, x, index):
    axis = at.get('axis', 0) % x.dim()
    index = torch.where(index < 0, index + x.shape[axis], index)
    if axis == 0 and x.dim() == 2 and index.dim():
        return F.embedding(index, x)
    return x.index_select(axis, index.reshape(-1)).reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1:]])


def squeeze(at, x, axes=None):
    axes = at.get('axes') if axes is None else ints(axes)
    return x.squeeze(tuple(axes)) if axes else x.squeeze()


def unsqueeze(at, x, axes=None):
    axes = at['axes'] if axes is None else ints(axes)
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


def expand(at, x, shape):
    return x.expand(torch.broadcast_shapes(x.shape, ints(shape)))


def type_of(number):
    return torch.from_numpy(np.zeros(1, onnx.helper.tensor_dtype_to_np_dtype(number))).dtype


def constant(at):
    value = next(iter(at.values()))
    return tensor(value) if isinstance(value, onnx.TensorProto) else torch.tensor(value)


def fill(at, shape):
    value = tensor(at['value']) if 'value' in at else torch.zeros(1)
    return value.reshape([1] * len(shape)).expand(ints(shape)).contiguous()


def triangle(at, x, k=None):
    return (torch.triu if at.get('upper', 1) else torch.tril)(x, int(k) if k is not None else 0)


def attention(at, q, k, v, mask=None):
    if q.dim() != 4:
        peer.fail('Attention is supported with operands of four axes')
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=bool(at.get('is_causal', 0)), scale=at.get('scale'),
                                          enable_gqa=q.shape[1] != k.shape[1])


def divide(at, a, b):
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode='trunc')


def gelu(at, x):
    return F.gelu(x, approximate=at.get('approximate', b'none').decode())


OPERATORS = {
    'Abs': same(torch.abs), 'Add': same(torch.add), 'And': same(torch.logical_and), 'Attention': attention,
    'AveragePool': average_pool, 'BatchNormalization': batch_norm, 'Cast': lambda at, x: x.to(type_of(at['to'])),
    'CastLike': lambda at, x, like: x.to(like.dtype), 'Clip': same(torch.clamp),
    'Concat': lambda at, *x: torch.cat(x, at['axis']), 'Constant': constant, 'ConstantOfShape': fill, 'Conv': conv,
    'Cos': same(torch.cos), 'Div': divide, 'Equal': same(torch.eq), 'Erf': same(torch.erf), 'Exp': same(torch.exp),
    'Expand': expand, 'Flatten': lambda at, x: x.reshape(int(np.prod(x.shape[:at.get('axis', 1)])), -1),
    'Gather': gather, 'Gelu': gelu, 'Gemm': gemm,
    'GlobalAveragePool': lambda at, x: x.mean(tuple(range(2, x.dim())), True), 'Greater': same(torch.gt),
    'GreaterOrEqual': same(torch.ge), 'Identity': same(lambda x: x), 'LSTM': lstm, 'LayerNormalization': layer_norm,
    'Less': same(torch.lt), 'LessOrEqual': same(torch.le), 'Log': same(torch.log),
    'LogSoftmax': lambda at, x: torch.log_softmax(x, at.get('axis', -1)), 'MatMul': same(torch.matmul),
    'Max': same(torch.maximum), 'MaxPool': max_pool, 'Min': same(torch.minimum), 'Mul': same(torch.mul),
    'Neg': same(torch.neg), 'Not': same(torch.logical_not), 'Or': same(torch.logical_or), 'Pow': same(torch.pow),
    'Range': same(lambda a, b, s: torch.arange(a.item(), b.item(), s.item())),
    'Reciprocal': same(torch.reciprocal), 'ReduceMax': folded(torch.amax), 'ReduceMean': folded(torch.mean),
    'ReduceSum': folded(torch.sum), 'Relu': same(F.relu), 'Reshape': reshape,
    'Shape': lambda at, x: torch.tensor(x.shape[at.get('start', 0):at.get('end', x.dim())]), 'Sigmoid': same(torch.sigmoid),
    'Sin': same(torch.sin), 'Slice': cut, 'Softmax': lambda at, x: torch.softmax(x, at.get('axis', -1)), 'Split': split,
    'Sqrt': same(torch.sqrt), 'Squeeze': squeeze, 'Sub': same(torch.sub), 'Tanh': same(torch.tanh),
    'Transpose': lambda at, x: x.permute(at.get('perm', list(range(x.dim()))[::-1])), 'Trilu': triangle, 'Unsqueeze': unsqueeze,
    'Where': same(torch.where),
}


def tensor(proto):
    return torch.from_numpy(onnx.numpy_helper.to_array(proto).copy()).to(torch.empty(0).device)


class Net(nn.Module):
    def __init__(self, path, output):
        super().__init__()
        model = onnx.load(path)
        unknown = {n.op_type for n in model.graph.node if n.op_type not in OPERATORS or n.domain not in ('', 'ai.onnx')}
        if unknown:
            peer.fail('the PyTorch peer has no operator ' + ', '.join(sorted(unknown)))
        if output not in {o.name for o in model.graph.output}:
            peer.fail(f"the model has no output '{output}'")
        trained = peer.trained_names(model)
        self.output, self.nodes = output, model.graph.node
        self.names = sorted(trained)
        initializers = sorted(model.graph.initializer, key=lambda i: i.name)
        self.weights = nn.ParameterList(tensor(i) for i in initializers if i.name in trained)
        self.fixed = {i.name: tensor(i) for i in model.graph.initializer if i.name not in trained}
        self.attributes = [{a.name: onnx.helper.get_attribute_value(a) for a in n.attribute} for n in self.nodes]
        self.left = None  # of the nodes, those that each call runs

    def forward(self, **inputs):
        values = {**self.fixed, **inputs, **dict(zip(self.names, self.weights))}
        left = []
        for k in range(len(self.nodes)) if self.left is None else self.left:
            node = self.nodes[k]
            out = OPERATORS[node.op_type](self.attributes[k], *(values[name] if name else None for name in node.input))
            new = dict(zip(node.output, out if isinstance(out, (tuple, list)) else [out]))
            values.update(new)
            if node.op_type in ('Shape', 'Size') or all(name in self.fixed for name in node.input if name):
                self.fixed.update(new)
            else:
                left.append(k)
        self.left = left
        return values[self.output]
