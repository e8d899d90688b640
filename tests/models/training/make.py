"""Writes the models beside it: networks in the forms that training graphs come in. Needs onnx; ort.py beside it
needs onnxruntime-training. The tests need only the files."""
import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

draw = np.random.RandomState(5)


def weight(name, *shape):
    return numpy_helper.from_array((draw.randn(*shape) * 0.5).astype(np.float32), name)


def full(name, value, *shape):
    return numpy_helper.from_array(np.full(shape, value, np.float32), name)


def value(name, *shape, type=onnx.TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def save(path, opset, nodes, inputs, outputs, weights, **more):
    graph = helper.make_graph(nodes, 'main', inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=8, **more)
    onnx.save(model, path)


def norms(path, opset, outputs, **attributes):
    """Two BatchNormalizations; those of an untrained network, whose equal initializers an exporter has merged."""
    nodes = [helper.make_node('Gemm', ['x', '0.weight', '0.bias'], ['a'], '/0/Gemm', transB=1)]
    for k, (into, out) in enumerate([('a', 'b'), ('c', 'logits')]):
        more = [f'{out}_{what}' for what in ('mean', 'variance', 'saved_mean', 'saved_variance')]
        names = ['ones', 'zeros', 'zeros', 'ones'] if path == 'norms_merged.onnx' else [
            f'{k}.gain', f'{k}.shift', f'{k}.running_mean', f'{k}.running_var']
        nodes.append(helper.make_node('BatchNormalization', [into, *names], [out, *more[:outputs - 1]], f'/{k}/Norm',
                                      momentum=0.75, **attributes))
    nodes.insert(2, helper.make_node('Tanh', ['b'], ['c'], '/Tanh'))
    draw.seed(5)
    weights = [weight('0.weight', 3, 4), full('0.bias', 0.25, 3)]
    if path == 'norms_merged.onnx':
        weights += [full('ones', 1, 3), full('zeros', 0, 3)]
    else:
        for k in range(2):
            weights += [full(f'{k}.gain', 1, 3), full(f'{k}.shift', 0, 3), full(f'{k}.running_mean', 0.5, 3),
                        full(f'{k}.running_var', 2, 3)]
    save(path, opset, nodes, [value('x', 'batch', 4)], [value('logits', 'batch', 3)], weights)


def drops(path, form):
    """An MLP with one dropout of 0.25, as `form` says."""
    rate, keep = full('rate', 0.25), full('keep', 0.75)
    like = full('example', 0, 2, 8)
    sites = {
        'train': [helper.make_node('Dropout', ['h', 'rate', 'true'], ['d', 'mask'], '/drop')],
        'eval': [helper.make_node('Dropout', ['h', 'rate'], ['d'], '/drop')],
        # in place: the mask is drawn as large as the example was
        'inplace': [helper.make_node('RandomUniformLike', ['example'], ['u'], '/drop/u'),
                    helper.make_node('Less', ['u', 'keep'], ['less'], '/drop/less'),
                    helper.make_node('Cast', ['less'], ['ones'], '/drop/ones', to=1),
                    helper.make_node('Div', ['ones', 'keep'], ['mask'], '/drop/mask'),
                    helper.make_node('Mul', ['h', 'mask'], ['d'], '/drop')],
        # of whole rows
        'path': [helper.make_node('RandomUniform', [], ['u'], '/drop/u', shape=[8, 1]),
                 helper.make_node('Add', ['u', 'keep'], ['sum'], '/drop/sum'),
                 helper.make_node('Floor', ['sum'], ['floor'], '/drop/floor'),
                 helper.make_node('Div', ['h', 'keep'], ['more'], '/drop/more'),
                 helper.make_node('Mul', ['more', 'floor'], ['d'], '/drop')],
        'bernoulli': [helper.make_node('Expand', ['keep', 'shape'], ['p'], '/drop/p'),
                      helper.make_node('Bernoulli', ['p'], ['ones'], '/drop/ones'),
                      helper.make_node('Mul', ['h', 'ones'], ['kept'], '/drop/kept'),
                      helper.make_node('Div', ['kept', 'keep'], ['d'], '/drop')],
        # by what is dropped, of a draw that is not from 0 to 1
        'flipped': [helper.make_node('RandomUniform', [], ['u'], '/drop/u', low=-1.0, high=1.0, shape=[8, 8]),
                    helper.make_node('Less', ['u', 'half'], ['less'], '/drop/less'),
                    helper.make_node('Div', ['h', 'keep'], ['more'], '/drop/more'),
                    helper.make_node('Where', ['less', 'zero', 'more'], ['d'], '/drop')],
        'minus': [helper.make_node('RandomUniform', [], ['u'], '/drop/u', shape=[8, 8]),
                  helper.make_node('Less', ['u', 'rate'], ['less'], '/drop/less'),
                  helper.make_node('Cast', ['less'], ['ones'], '/drop/ones', to=1),
                  helper.make_node('Sub', ['one', 'ones'], ['kept'], '/drop/kept'),
                  helper.make_node('Mul', ['h', 'kept'], ['some'], '/drop/some'),
                  helper.make_node('Div', ['some', 'keep'], ['d'], '/drop')],
        # no dropout: noise
        'noise': [helper.make_node('RandomNormal', [], ['u'], '/drop/u', shape=[8, 8]),
                  helper.make_node('Add', ['h', 'u'], ['d'], '/drop')],
        'none': [helper.make_node('Identity', ['h'], ['d'], '/none')],
    }
    nodes = [helper.make_node('Gemm', ['x', '0.weight', '0.bias'], ['h'], '/0/Gemm', transB=1), *sites[form],
             helper.make_node('Relu', ['d'], ['r'], '/Relu'),
             helper.make_node('Gemm', ['r', '1.weight', '1.bias'], ['logits'], '/1/Gemm', transB=1)]
    used = {name for node in nodes for name in node.input}
    draw.seed(6)
    weights = [weight('0.weight', 8, 4), full('0.bias', 0.1, 8), weight('1.weight', 3, 8), full('1.bias', 0, 3), rate,
               keep, like, full('half', -0.5), full('one', 1), full('zero', 0), numpy_helper.from_array(np.array(True), 'true'),
               numpy_helper.from_array(np.array([8, 8], np.int64), 'shape')]
    save(path, 17, nodes, [value('x', 'batch', 4)], [value('logits', 'batch', 3)],
         [w for w in weights if w.name in used])


def block(path):
    """A block of attention and an MLP, as an eval export has them: without dropout."""
    nodes, weights, d = [], [], 8

    def dense(name, x, out, n=d):
        nodes.append(helper.make_node('MatMul', [x, name + '.weight'], [name], f'/{name}/MatMul'))
        nodes.append(helper.make_node('Add', [name, name + '.bias'], [out], f'/{name}/Add'))
        m = 2 * d if name == 'down' else d
        weights.extend([weight(name + '.weight', m, n), full(name + '.bias', 0, n)])

    draw.seed(7)
    for k in 'qkv':
        dense(k, 'x', k + '_out')
    nodes.append(helper.make_node('Transpose', ['k_out'], ['k_turned'], '/turn', perm=[0, 2, 1]))
    nodes.append(helper.make_node('MatMul', ['q_out', 'k_turned'], ['scores'], '/scores'))
    nodes.append(helper.make_node('Softmax', ['scores'], ['p'], '/softmax', axis=-1))
    nodes.append(helper.make_node('MatMul', ['p', 'v_out'], ['mixed'], '/mixed'))
    dense('proj', 'mixed', 'attention')
    nodes.append(helper.make_node('Add', ['x', 'attention'], ['middle'], '/add'))
    dense('up', 'middle', 'wide', 2 * d)
    nodes.append(helper.make_node('Relu', ['wide'], ['bent'], '/relu'))
    dense('down', 'bent', 'mlp')
    nodes.append(helper.make_node('Add', ['middle', 'mlp'], ['y'], '/end'))
    save(path, 17, nodes, [value('x', 'batch', 3, d)], [value('y', 'batch', 3, d)], weights)


def information(path, kind):
    """An MLP with training information: a loss behind it, and an optimizer of which the file says everything."""
    names = ['0.weight', '0.bias', '1.weight']
    nodes = [helper.make_node('Gemm', ['x', '0.weight', '0.bias'], ['h'], '/0', transB=1),
             helper.make_node('Tanh', ['h'], ['t'], '/Tanh'),
             helper.make_node('MatMul', ['t', '1.weight'], ['logits'], '/1')]
    draw.seed(8)
    weights = [weight('0.weight', 8, 4), full('0.bias', 0, 8), weight('1.weight', 8, 3)]
    graph = helper.make_graph(nodes, 'main', [value('x', 'batch', 4)], [value('logits', 'batch', 3)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17),
                                                    helper.make_opsetid('ai.onnx.preview.training', 1)], ir_version=8)
    trained = names[:2] if kind == 'gradient' else names  # 1.weight is updated by an average of its own
    steps = [helper.make_node('SoftmaxCrossEntropyLoss', ['logits', 'labels'], ['entropy']),
             helper.make_node('Mul', ['entropy', 'half'], ['objective'])]
    if kind == 'gradient':
        steps.append(helper.make_node('Gradient', [*trained, 'x', 'labels'], [name + '.g' for name in trained],
                                      domain='ai.onnx.preview.training', xs=trained, zs=['x', 'labels'], y='objective'))
        for name in trained:
            steps += [helper.make_node('Mul', ['rate', name + '.g'], [name + '.step']),
                      helper.make_node('Sub', [name, name + '.step'], [name + '.next'])]
    for name in names[2 if kind == 'gradient' else 0:]:
        steps.append(helper.make_node('Identity', [name], [name + '.next']))
    outputs = [value('objective')] + [value(w.name + '.next', *w.dims) for w in weights]
    if kind == 'unclear':
        outputs.append(value('entropy'))
    algorithm = helper.make_graph(steps, 'step', [value('labels', 'batch', type=onnx.TensorProto.INT64)], outputs,
                                  [full('rate', 0.1), full('half', 0.5)])
    bindings = [(name, name + '.next') for name in names]
    for _ in range(2 if kind == 'turns' else 1):
        model.training_info.append(helper.make_training_info(algorithm, bindings, None, None))
    onnx.save(model, path)


def tables(path):
    """Attention with every kind of table that an exporter computes, one of them learned; none has a name."""
    n, d = 6, 8
    at, column = np.arange(n)[:, None], np.arange(d)[None]
    turns = at / 10 ** (column % 4)
    wave = np.where(column < 4, np.sin(turns), np.cos(turns))
    causal, windows = np.triu(np.full((n, n), -1e9), 1), np.where((at < 3) == (at.T < 3), 0, -100)
    tables = {'Add_20': wave, 'Add_21': 0.5 * at + column, 'Mul_22': np.cos(turns), 'Add_23': causal, 'Add_24': windows,
              'Add_25': -0.5 * abs(at - at.T)}
    draw.seed(9)
    weights = [numpy_helper.from_array(t[None].astype(np.float32), f'onnx::{k}') for k, t in tables.items()]
    weights += [weight('onnx::Add_26', 1, n, n), weight('onnx::MatMul_27', d, 3)]
    nodes = [helper.make_node(op, names.split(), [out], node) for op, names, out, node in [
        ('Add', 'x onnx::Add_20', 'a', '/embed/Add'), ('Add', 'a onnx::Add_21', 'b', '/embed/Add_1'),
        ('Mul', 'b onnx::Mul_22', 'q', '/attention/Mul'), ('Transpose', 'b', 'k', '/attention/Transpose'),
        ('MatMul', 'q k', 's0', '/attention/MatMul'), ('Add', 's0 onnx::Add_23', 's1', '/attention/Add'),
        ('Add', 's1 onnx::Add_24', 's2', '/attention/Add_1'), ('Add', 's2 onnx::Add_25', 's3', '/attention/Add_2'),
        ('Add', 's3 onnx::Add_26', 's4', '/attention/Add_3'), ('Softmax', 's4', 'p', '/attention/Softmax'),
        ('MatMul', 'p b', 'c', '/attention/MatMul_1'), ('MatMul', 'c onnx::MatMul_27', 'y', '/head/MatMul')]]
    nodes[3].attribute.append(helper.make_attribute('perm', [0, 2, 1]))
    save(path, 17, nodes, [value('x', 'batch', n, d)], [value('y', 'batch', n, 3)], weights, producer_name='pytorch')


norms('norms_old.onnx', 13, 5)
norms('norms_new.onnx', 17, 3, training_mode=1)
norms('norms_eval.onnx', 17, 1)
norms('norms_merged.onnx', 17, 1)
for form in ('train', 'eval', 'inplace', 'path', 'bernoulli', 'flipped', 'minus', 'noise', 'none'):
    drops(f'drops_{form}.onnx', form)
block('block.onnx')
tables('folded_tables.onnx')
for kind in ('gradient', 'plain', 'unclear', 'turns'):
    information(f'information_{kind}.onnx', kind)

# Nodes for training wherever nodes can be: in the graph, in a branch, in a function; of the first opsets.
MODES = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
modes (float[batch, 4] x, bool in_training) => (float[batch, 3] logits)
<float rate = {0.5}, bool in_training_0 = {1}, float[4] gain = {1, 1, 1, 1}, float[4] shift = {0, 0, 0, 0},
 float[4] mean = {0, 0, 0, 0}, float[4] var = {1, 1, 1, 1},
 float[4, 3] weight = {0.5, -0.2, 0.1, 0.3, 0.4, -0.5, -0.1, 0.2, 0.6, -0.3, 0.1, 0.2}>
{
  in_training_1 = Constant <value = bool {1}> ()
  n, running_mean, running_var = BatchNormalization <training_mode = 1> (x, gain, shift, mean, var)
  a, mask = Dropout (n, rate, in_training_0)
  b = Dropout (a, rate, in_training_1)
  c = Dropout (b, rate, in_training)
  d = own.Drop (c)
  sum = ReduceSum <keepdims = 0> (x)
  never = Less (sum, sum)
  e = If (never) <then_branch = then () => (float[batch, 4] p) { p = Dropout (d, rate, in_training_0) },
                  else_branch = other () => (float[batch, 4] q) { q = Dropout (d, rate, in_training_1) }>
  logits = MatMul (e, weight)
}
<domain: "own", opset_import: ["": 17]>
Drop (v) => (w)
{
  rate = Constant <value_float = 0.5> ()
  in_training_2 = Constant <value = bool {1}> ()
  w = Dropout (v, rate, in_training_2)
}"""
OLD_MODES = """<ir_version: 3, opset_import: ["": 6]>
modes (float[batch, 4] x) => (float[batch, 3] logits)
<float[4] gain = {1, 1, 1, 1}, float[4] shift = {0, 0, 0, 0}, float[4] mean = {0, 0, 0, 0}, float[4] var = {1, 1, 1, 1},
 float[4, 3] weight = {0.5, -0.2, 0.1, 0.3, 0.4, -0.5, -0.1, 0.2, 0.6, -0.3, 0.1, 0.2}>
{
  n, running_mean, running_var, batch_mean, batch_var = BatchNormalization <is_test = 0> (x, gain, shift, mean, var)
  a = Dropout <ratio = 0.5> (n)
  logits = MatMul (a, weight)
}"""
for name, text in [('modes', MODES), ('modes_old', OLD_MODES)]:
    onnx.save(parser.parse_model(text), name + '.onnx')
