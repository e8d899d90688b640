"""Writes compiler/onnx/lower/schema.def: for each operator of ops.def, the attributes, inputs and outputs that its schemas
declare, from the schemas in the onnx and onnxruntime wheels, which pip puts under build/ (--check: compares only)."""
import re
import struct
import subprocess
import sys
from pathlib import Path

VERSIONS = {'onnx': '1.22.0', 'onnxruntime': '1.32.0'}
ROOT = Path(__file__).parent.parent / 'compiler/onnx'
KINDS = {'INT': 'i', 'FLOAT': 'f', 'STRING': 's', 'TENSOR': 't', 'GRAPH': 'g', 'SPARSE_TENSOR': 'x', 'TYPE_PROTO': 'p',
         'INTS': 'I', 'FLOATS': 'F', 'STRINGS': 'S', 'TENSORS': 'T', 'GRAPHS': 'G'}

# Operators that neither wheel declares: those of ONNX Runtime's training build, and two that exporters write.
OTHERS = {
    ('', 'ConstantFill', 1): ('?', '1', 'dtype:i=1 extra_shape:I input_as_shape:i shape:I value:f=0'),
    ('', 'Erfc', 9): ('1', '1', ''),
    ('com.microsoft', 'ConcatTraining', 1): ('+', '1?', 'axis!:i'),
    ('com.microsoft', 'FakeQuant', 1): ('111', '1?', 'quant_max:i=255 quant_min:i=0'),
    ('com.microsoft', 'GRUTraining', 1): ('111???', '????', 'activation_alpha:F activation_beta:F activations:S clip:f '
                                          'direction:s=forward hidden_size:i linear_before_reset:i=0'),
    ('com.microsoft', 'LSTMTraining', 1): ('111?????', '?????', 'activation_alpha:F activation_beta:F activations:S clip:f '
                                           'direction:s=forward hidden_size:i input_forget:i=0'),
    ('com.microsoft', 'ScaledSum', 1): ('11?', '1', 'scale_0!:f scale_1!:f scale_2:f'),
    ('com.microsoft', 'SoftmaxCrossEntropyLossInternal', 1):
        ('11??', '1?', 'ignore_index:i output_type:i reduction:s=mean'),
    ('com.microsoft', 'SplitTraining', 1): ('11', '+', 'axis:i=0'),
}

HEADER = '''// schema.def: the inputs, outputs and attributes that the schemas of ONNX (onnx {onnx}) and ONNX
// Runtime ({onnxruntime}) declare for the operators of ops.def. Written by tests/schema.py; sorted.
//
// SCHEMA(operator, domain, since, inputs, outputs, attributes)
//   since     the operator set from which on it is so
//   inputs, outputs   one character each: 1 required, ? optional, + one or more, * any number
//   attributes        NAME:KIND, NAME!:KIND where required, NAME:KIND=DEFAULT. The kinds: i int,
//             f float, s string, t tensor, g graph, x sparse tensor, p type; I F S lists of these
'''


def bring_wheels():
    """Makes the wheels of these versions the ones that are imported."""
    wheels = [f'{name}=={version}' for name, version in VERSIONS.items()]
    folder = ROOT.parent.parent / 'build' / '-'.join(['schema', *VERSIONS.values()])
    if not (folder / 'done').exists():
        subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--upgrade', '--target', folder, *wheels], check=True)
        (folder / 'done').touch()
    sys.path.insert(0, str(folder))


def formals(schema, which):
    single = {'Single': '1', 'Optional': '?'}
    return ''.join(single.get(f.option.name) or '*+'[getattr(f, 'min_arity', 1) > 0] for f in getattr(schema, which))


def shortest(x):
    """The fewest digits that read back as the same 32-bit float."""
    bits = struct.pack('f', x)
    return next(text for text in (f'{x:.{n}g}' for n in range(1, 10)) if struct.pack('f', float(text)) == bits)


def default(attribute):
    value = getattr(attribute, 'default_value', None)
    kind = attribute.type.name
    if not value or not value.type:
        return ''
    one = {'INT': lambda: str(value.i), 'FLOAT': lambda: shortest(value.f), 'STRING': lambda: value.s.decode(),
           'INTS': lambda: ','.join(map(str, value.ints)), 'FLOATS': lambda: ','.join(map(shortest, value.floats)),
           'STRINGS': lambda: ','.join(s.decode() for s in value.strings)}[kind]()
    assert ' ' not in one
    return '=' + one


def attributes(schema):
    return ' '.join(f'{name}{"!" if a.required else ""}:{KINDS[a.type.name]}{default(a)}'
                    for name, a in sorted(schema.attributes.items()))


def rows():
    import onnx
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime
    table = re.findall(r'^OP\((\w+), "([^"]*)", \d+,(?: "[^"]*",){3}\s+(\w+)', (ROOT / 'ops.def').read_text(), re.M)
    known = {(domain, name) for name, domain, lower in table if lower != 'unsupported'}
    found = dict(OTHERS)
    for schemas in (onnx.defs.get_all_schemas_with_history(), runtime.get_all_operator_schema()):
        taken = {key[:2] for key in found}
        for s in schemas:
            if (s.domain, s.name) in known - taken and not s.deprecated:
                found[s.domain, s.name, s.since_version] = (formals(s, 'inputs'), formals(s, 'outputs'), attributes(s))
    last = None
    for key in sorted(found):
        if not last or last[0][:2] != key[:2] or last[1] != found[key]:
            yield key, found[key]
        last = key, found[key]


def lines(text, first):
    """A string in pieces of at most 100 columns, `first` before it."""
    out, line = [], first + '"'
    for word in text.split(' '):
        if len(line) + len(word) > 95:
            out.append(line + '"')
            line = '  "'
        line += word + ' '
    return '\n'.join(out + [line[:-1] + '")'])


def written():
    body = '\n'.join(lines(attrs, f'SCHEMA({name}, "{domain}", {since}, "{ins}", "{outs}", ')
                     for (domain, name, since), (ins, outs, attrs) in rows())
    return HEADER.format(**VERSIONS) + body + '\n'


if __name__ == '__main__':
    bring_wheels()
    path = ROOT / 'lower/schema.def'
    text = written()
    if '--check' not in sys.argv:
        path.write_text(text)
    elif path.read_text() != text:
        sys.exit('compiler/onnx/lower/schema.def is not what tests/schema.py writes')
