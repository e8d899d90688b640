"""Writes what has no result yet in contrib.txt its own. Needs onnx and onnxruntime; the test needs only the file."""
import math
import re
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

types = {'%': np.float32, '@': np.int64, '#': np.int32, '&': np.uint8}


def numbers(text):
    return [float(x) for x in text.strip('[]').split(',') if x]


def constant(word):
    values, _, dims = word[1:].partition('/')
    values = np.array(numbers(values)).astype(types[word[0]])
    return values.reshape([int(d) for d in numbers(dims)]) if '/' in word else values


def varied(name, dims):
    x = 2 * np.sin(12.9898 * np.arange(int(np.prod(dims))) + ord(name[0]))
    return (np.abs(x) + 0.25 if name[0] == 'q' else x).astype(np.float32).reshape(dims)


def number(text):
    return float(text) if '.' in text else int(text)


def attribute(text):
    if text[0] == '[':
        return [number(x) for x in text[1:-1].split(',')]
    return number(text) if re.fullmatch(r'-?[\d.]+', text) else text


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3))) / 2


def softmax(a, x, scale, zero, to, at):
    axes = (a['axis'],) if a['opset'] >= 13 else tuple(range(a['axis'], x.ndim))
    y = np.exp(scale * (x - zero.astype(np.float32)))
    return np.rint(y / y.sum(axes, keepdims=True) / to) + at


def leaky(x, alpha):
    return np.where(x < 0, alpha * x, x)


def group_norm(a, x, gamma, beta, skip=None, bias=None):
    x = x if skip is None else x + skip.reshape(x.shape[0], 1, 1, -1) + bias
    y = x.reshape(x.shape[0], -1, a['groups'], x.shape[-1] // a['groups'])
    y = y - y.mean((1, 3), keepdims=True)
    y = (y / np.sqrt((y * y).mean((1, 3), keepdims=True) + a['epsilon'])).reshape(x.shape) * gamma + beta
    return y / (1 + np.exp(-y)) if a.get('activation') else y


def buckets(a, table, queries, keys):
    """T5's, one distance at a time."""
    n, far, both = len(table), a['max_distance'], a.get('is_bidirectional', 0)
    out = np.zeros((1, table.shape[1], queries[0], keys[0]), np.float32)
    for q in range(queries[0]):
        for k in range(keys[0]):
            count, base, d = n, 0, q - k
            if both:
                count, base, d = n // 2, n // 2 if k > q else 0, abs(d)
            d, near = max(d, 0), count // 2
            if d >= near:
                d = min(near + int(np.log(d / near) / np.log(far / near) * (count - near)), count - 1)
            out[0, :, q, k] = table[base + d]
    return out


def loss(a, x, labels, _, ignore):
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    kept = labels != ignore
    return -logp[np.arange(len(labels)), np.where(kept, labels, 0)][kept].mean()


def convolve(a, x, w, b):
    out = np.zeros((1, x.shape[1] - 1, x.shape[2] - 1, len(w)))
    for i in range(2):
        for j in range(2):
            out += x[:, i:i + out.shape[1], j:j + out.shape[2]] @ w[:, :, i, j].T
    return out + b


def crop(a, x):
    left, top, right, bottom = a['border']
    height, width = a.get('scale', (x.shape[2] - top - bottom, x.shape[3] - left - right))
    return x[:, :, top:top + height, left:left + width]


definitions = {
    'Affine': lambda a, x: a['alpha'] * x + a['beta'], 'Scale': lambda a, x: a['scale'] * x,
    'Erfc': lambda a, x: np.vectorize(math.erfc)(x),
    'ScaledTanh': lambda a, x: a['alpha'] * np.tanh(a['beta'] * x),
    'ParametricSoftplus': lambda a, x: a['alpha'] * np.log(1 + np.exp(a['beta'] * x)),
    'ImageScaler': lambda a, x: a['scale'] * x + np.reshape(a['bias'], (1, -1, 1, 1)),
    'Crop': crop, 'DynamicSlice': lambda a, x, start, end, axes: x[0:4, 1:3],
    'BiasAdd': lambda a, x, b, s: x + b + s,
    'BiasSplitGelu': lambda a, x, b: (x + b)[..., :3] * gelu((x + b)[..., 3:]),
    'GroupNorm': group_norm, 'SkipGroupNorm': group_norm, 'RelativePositionBias': buckets,
    'BiasDropout': lambda a, x, b, r, _: x + b + r, 'BitmaskDropout': lambda a, x, _: x,
    'SoftmaxCrossEntropyLossInternal': loss, 'NhwcConv': convolve,
    'ScaledSum': lambda a, x, y, z: a['scale_0'] * x + a['scale_1'] * y + a['scale_2'] * z,
    'ConcatTraining': lambda a, x, y: np.concatenate([x, y]),
    'FakeQuant': lambda a, x, s, z: (np.clip(np.rint(x / s) + z, a['quant_min'], a['quant_max']) - z) * s,
    'QLinearSoftmax': softmax,  # the runtime's cuts off where it should round
    'GemmFastGelu': lambda a, x, w, b: gelu_tanh(x @ w + b),
    'FusedMatMulActivation': lambda a, x, w: leaky(a['alpha'] * x.T @ w, a['activation_alpha']),
    'BiasSoftmax': lambda a, x, b: np.exp(x + b) / np.exp(x + b).sum(-1, keepdims=True),
}


more = {'GroupQueryAttention': ['k', 'v'], 'MultiHeadAttention': ['k', 'v'],
        'EmbedLayerNormalization': ['k'], 'QEmbedLayerNormalization': ['k'],
        'LinearAttention': ['k'], 'CausalConvWithState': ['k']}  # results that must have names


def unpacked(operands):
    """What the CPU's MultiHeadAttention does not take apart itself."""
    out = []
    for name, x in operands:
        parts = [x] if x is None or x.ndim < 5 else [x[:, :, :, i].reshape(*x.shape[:2], -1) for i in range(x.shape[3])]
        out += [(name and name + str(i), part) for i, part in enumerate(parts)]
    return out


def by_runtime(domain, op, version, operands, attributes, results):
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in operands if n and n[0] != '$']
    constants = [numpy_helper.from_array(x, n) for n, x in operands if n and n[0] == '$']
    node = helper.make_node(op, [n for n, _ in operands], results + more.get(op, [])[len(results) - 1:], domain=domain,
                            **attributes)
    out = helper.make_empty_tensor_value_info(results[-1])
    if op in more:  # its type does not follow
        out = helper.make_tensor_value_info(results[-1], TensorProto.FLOAT, None)
    graph = helper.make_graph([node], 'g', inputs, [out], constants)
    sets = [helper.make_opsetid('', 17 if domain else version), helper.make_opsetid('com.microsoft', 1),
            helper.make_opsetid('ai.onnx.ml', 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # of what is quantized as it comes, each thread takes a range of its own
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = helper.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString()
    given = {n: x for n, x in operands if n and n[0] != '$'}
    return onnxruntime.InferenceSession(model, options).run(results[-1:], given)[0]


def result(line):
    words = line.split()
    (domain, _, op), operands, attributes, results = words[0].rpartition('.'), [], {}, ['y']
    for word in words[2:]:
        if re.match(r'[a-zA-Z]\w*=', word):
            key, text = word.split('=')
            attributes[key] = attribute(text)
        elif re.match(r'[a-z]:', word):
            operands.append((word[0], varied(word[0], [int(d) for d in word[2:].split(',')])))
        elif word[0] == '>':
            results = [name.lstrip('%@#&') for name in word[1:].split(',')]
        else:
            operands.append(('', None) if word == '-' else (f'${len(operands)}', constant(word)))
    if op in definitions:
        return definitions[op](attributes, *[x for _, x in operands])
    operands = unpacked(operands) if op == 'MultiHeadAttention' else operands
    return by_runtime(domain, op, int(words[1]), operands, attributes, results)


with open('contrib.txt') as file:
    lines = file.readlines()
for i, line in enumerate(lines):
    if line[0].isalpha() and ''.join(lines[i + 1:i + 2])[:1] not in ('=', '~'):
        straight = re.match(r'com.microsoft.(FakeQuant|DynamicQuantizeL|QLinear|QGemm)', line)
        lines[i] += ('~ ' if straight else '= ') + ' '.join(f'{x:.6g}' for x in np.ravel(result(line))) + '\n'
with open('contrib.txt', 'w') as file:
    file.writelines(lines)
