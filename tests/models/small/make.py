"""Writes a small BERT-like classifier with first weights as PyTorch's users have them, and its data: does token 1 come before
token 2? Run it in this folder; it needs numpy and onnx."""
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

WIDTH, LENGTH, TOKENS, HEADS, LAYERS = 32, 12, 24, 2, 2
rng = np.random.default_rng(0)
weights, nodes = {}, []


def weight(name, array):
    weights[name] = np.asarray(array, np.float32)
    return name


def node(op, *inputs, **attributes):
    out = f'{op}_{len(nodes)}'
    nodes.append(h.make_node(op, inputs, [out], name=out, **attributes))
    return out


def ints(*values):
    name = 'ints_' + '_'.join(str(v) for v in values)
    weights[name] = np.array(values, np.int64)
    return name


def linear(x, name, n, m):
    w = weight(name + '.weight', rng.normal(0, 0.02, (n, m)))
    return node('Add', node('MatMul', x, w), weight(name + '.bias', np.zeros(m)))


def norm(x, name):
    return node('LayerNormalization', x, weight(name + '.weight', np.ones(WIDTH)), weight(name + '.bias', np.zeros(WIDTH)))


def heads(x, name, turn):
    y = node('Reshape', linear(x, name, WIDTH, WIDTH), ints(-1, LENGTH, HEADS, WIDTH // HEADS))
    return node('Transpose', y, perm=turn)


def layer(x, name):
    q, v = (heads(x, f'{name}.{k}', [0, 2, 1, 3]) for k in ('query', 'value'))
    k = heads(x, name + '.key', [0, 2, 3, 1])
    scale = weight('scale', (WIDTH // HEADS) ** -0.5)
    p = node('Softmax', node('Mul', node('MatMul', q, k), scale), axis=-1)
    y = node('Transpose', node('MatMul', p, v), perm=[0, 2, 1, 3])
    y = linear(node('Reshape', y, ints(-1, LENGTH, WIDTH)), name + '.output', WIDTH, WIDTH)
    x = norm(node('Add', x, y), name + '.norm1')
    y = linear(node('Gelu', linear(x, name + '.up', WIDTH, 4 * WIDTH)), name + '.down', 4 * WIDTH, WIDTH)
    return norm(node('Add', x, y), name + '.norm2')


x = node('Gather', weight('words.weight', rng.normal(0, 0.02, (TOKENS, WIDTH))), 'ids')
x = norm(node('Add', x, weight('places.weight', rng.normal(0, 0.02, (LENGTH, WIDTH)))), 'norm')
for i in range(LAYERS):
    x = layer(x, f'layer{i}')
x = node('Gather', x, ints(0), axis=1)
x = node('Squeeze', x, ints(1))
x = node('Tanh', linear(x, 'pooler', WIDTH, WIDTH))
y = linear(x, 'classifier', WIDTH, 2)
nodes.append(h.make_node('Identity', [y], ['logits']))
graph = h.make_graph(nodes, 'small', [h.make_tensor_value_info('ids', T.INT64, ['batch', LENGTH])],
                     [h.make_tensor_value_info('logits', T.FLOAT, ['batch', 2])], [nh.from_array(a, n) for n, a in weights.items()])
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid('', 20)], ir_version=9), 'small.onnx')


def samples(n):
    ids = rng.integers(3, TOKENS, (n, LENGTH))
    places = np.array([rng.choice(LENGTH - 1, 2, replace=False) + 1 for _ in range(n)])
    ids[np.arange(n), places[:, 0]] = 1
    ids[np.arange(n), places[:, 1]] = 2
    ids[:, 0] = 0
    return ids.astype(np.int64), (places[:, 0] < places[:, 1]).astype(np.int64)


for name, n in [('small', 1792), ('tuned', 160)]:
    ids, labels = samples(n)
    np.savez_compressed(name + '.npz', ids=ids.astype(np.uint8), labels=labels.astype(np.uint8))
