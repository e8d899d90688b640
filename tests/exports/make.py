"""make.py: how the files beside it were made: the networks of the paper's tables, as a person would write them in
PyTorch (2.13), tiny and with m != 2d, exported by both exporters, in training and in default form.
    python3 make.py [NET... | billion]
Of what the newer exporter writes on nodes only what amosc reads is kept, and that not on views. ResNet's weights are cut off into weights.bin, which
is not kept: eta does not look at weights, and the tests put a file of zeros in its place. The files lie in exports.tar.xz."""
import inspect, math, sys
import onnx, onnx_ir as ir, torch
from torch import nn
import torch.nn.functional as F
from outside import move_weights

class Attention(nn.Module):
    def __init__(self, d, heads, rope=False, rpe=0):
        super().__init__()
        self.heads, self.h = heads, d // heads
        self.query, self.key, self.value, self.attention_out = (nn.Linear(d, d) for _ in range(4))
        self.rope, self.rpe = rope, rpe
        if rpe:
            self.relpos_embed = nn.Embedding(2 * rpe - 1, d)
    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.h).transpose(1, 2)
    def rotate(self, x, cos, sin):
        x1, x2 = x.chunk(2, -1)
        return x * cos + torch.cat([-x2, x1], -1) * sin
    def forward(self, x, mask, cos=None, sin=None):
        n = x.shape[1]
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if self.rope:
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        s = q @ k.transpose(-1, -2)
        if self.rpe:
            i = torch.arange(n)
            t = self.relpos_embed((i[None] - i[:, None]).clamp(1 - self.rpe, self.rpe - 1) + self.rpe - 1)
            kr = self.key(t).view(n, n, self.heads, self.h)
            vr = self.value(t).view(n, n, self.heads, self.h)
            s = s + torch.einsum('bhid,ijhd->bhij', q, kr)
        s = s / math.sqrt(self.h) + mask
        p = F.dropout(s.softmax(-1), 0.1, self.training)
        c = p @ v
        if self.rpe:
            c = c + torch.einsum('bhij,ijhd->bhid', p, vr)
        return self.attention_out(c.transpose(1, 2).reshape(x.shape))

class Layer(nn.Module):
    def __init__(self, d, m, heads, **kw):
        super().__init__()
        self.attention = Attention(d, heads, **kw)
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dense1, self.dense2 = nn.Linear(d, m), nn.Linear(m, d)
        self.dropout = nn.Dropout(0.1)
    def forward(self, x, *a):
        x = self.ln1(x + self.dropout(self.attention(x, *a)))
        return self.ln2(x + self.dropout(self.dense2(F.gelu(self.dense1(x)))))

class Bert(nn.Module):
    def __init__(self, d=8, m=20, heads=2, vocab=11, positions=9, layers=2, rope=False, rpe=0):
        super().__init__()
        self.token_embed = nn.Embedding(vocab, d)
        self.segment_embed = nn.Embedding(2, d)
        self.rope, self.rpe = rope, rpe
        if not rope and not rpe:
            self.position_embed = nn.Embedding(positions, d)
        self.ln0 = nn.LayerNorm(d)
        self.layers = nn.ModuleList(Layer(d, m, heads, rope=rope, rpe=rpe) for _ in range(layers))
        self.mlm_dense, self.mlm_ln = nn.Linear(d, d), nn.LayerNorm(d)
        self.mlm_bias = nn.Parameter(torch.zeros(vocab))
        self.h = d // heads
    def forward(self, input_ids, segment_ids, attention_mask):
        n = input_ids.shape[1]
        x = self.token_embed(input_ids) + self.segment_embed(segment_ids)
        if not self.rope and not self.rpe:
            x = x + self.position_embed(torch.arange(n))
        x = F.dropout(self.ln0(x), 0.1, self.training)
        mask = (1 - attention_mask[:, None, None].float()) * -1e9
        cos = sin = None
        if self.rope:
            f = 10000 ** (-torch.arange(0, self.h, 2) / self.h)
            a = torch.arange(n)[:, None] * f
            a = torch.cat([a, a], -1)
            cos, sin = a.cos(), a.sin()
        for layer in self.layers:
            x = layer(x, mask, cos, sin) if self.rope else layer(x, mask)
        x = self.mlm_ln(F.gelu(self.mlm_dense(x)))
        return F.linear(x, self.token_embed.weight, self.mlm_bias)

class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

class T5Attention(nn.Module):
    def __init__(self, d, h, heads, bias=False, causal=False, buckets=8):
        super().__init__()
        self.h, self.heads, self.causal, self.buckets = h, heads, causal, buckets
        self.q, self.k, self.v = (nn.Linear(d, h * heads, bias=False) for _ in range(3))
        self.o = nn.Linear(h * heads, d, bias=False)
        if bias:
            self.relative_attention_bias = nn.Embedding(buckets, heads)
    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.h).transpose(1, 2)
    def position_bias(self, n, m):
        rel = torch.arange(m)[None] - torch.arange(n)[:, None]
        bucket = (rel if not self.causal else -rel).clamp(-(self.buckets // 2), self.buckets // 2 - 1) + self.buckets // 2
        b = self.relative_attention_bias(bucket).permute(2, 0, 1)[None]
        if self.causal:
            b = b + torch.full((n, m), -1e9).triu(1)
        return b
    def forward(self, x, kv, bias):
        s = self.split(self.q(x)) @ self.split(self.k(kv)).transpose(-1, -2)
        if bias is not None:
            s = s + bias
        c = F.dropout(s.softmax(-1), 0.1, self.training) @ self.split(self.v(kv))
        return self.o(c.transpose(1, 2).flatten(2))

class T5FF(nn.Module):
    def __init__(self, d, m):
        super().__init__()
        self.wi_0, self.wi_1, self.wo = nn.Linear(d, m, bias=False), nn.Linear(d, m, bias=False), nn.Linear(m, d, bias=False)
    def forward(self, x):
        return self.wo(F.dropout(F.gelu(self.wi_0(x), approximate='tanh') * self.wi_1(x), 0.1, self.training))

class T5Block(nn.Module):
    def __init__(self, d, m, h, heads, decoder, first):
        super().__init__()
        self.attn = T5Attention(d, h, heads, first, decoder)
        self.ln1, self.ln2 = RMSNorm(d), RMSNorm(d)
        if decoder:
            self.ln3, self.cross = RMSNorm(d), T5Attention(d, h, heads)
        self.ff = T5FF(d, m)
    def forward(self, x, bias, e=None):
        y = self.ln1(x)
        x = x + F.dropout(self.attn(y, y, bias), 0.1, self.training)
        if e is not None:
            x = x + F.dropout(self.cross(self.ln2(x), e, None), 0.1, self.training)
            return x + F.dropout(self.ff(self.ln3(x)), 0.1, self.training)
        return x + F.dropout(self.ff(self.ln2(x)), 0.1, self.training)

class T5(nn.Module):
    def __init__(self, d=6, m=10, h=5, heads=2, vocab=11, layers=3):
        super().__init__()
        self.shared = nn.Embedding(vocab, d)
        self.encoder = nn.ModuleList(T5Block(d, m, h, heads, False, i == 0) for i in range(layers))
        self.decoder = nn.ModuleList(T5Block(d, m, h, heads, True, i == 0) for i in range(layers))
        self.encoder_ln, self.decoder_ln = RMSNorm(d), RMSNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)
    def forward(self, input_ids, decoder_input_ids):
        x = F.dropout(self.shared(input_ids), 0.1, self.training)
        bias = self.encoder[0].attn.position_bias(x.shape[1], x.shape[1])
        for b in self.encoder:
            x = b(x, bias)
        e = self.encoder_ln(x)
        y = F.dropout(self.shared(decoder_input_ids), 0.1, self.training)
        bias = self.decoder[0].attn.position_bias(y.shape[1], y.shape[1])
        for b in self.decoder:
            y = b(y, bias, e)
        return self.lm_head(self.decoder_ln(y))

class Bottleneck(nn.Module):
    def __init__(self, cin, f, stride, project):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, f, 1, bias=False), nn.BatchNorm2d(f)
        self.conv2, self.bn2 = nn.Conv2d(f, f, 3, stride, 1, bias=False), nn.BatchNorm2d(f)
        self.conv3, self.bn3 = nn.Conv2d(f, 4 * f, 1, bias=False), nn.BatchNorm2d(4 * f)
        if project:
            self.proj_conv, self.proj_bn = nn.Conv2d(cin, 4 * f, 1, stride, bias=False), nn.BatchNorm2d(4 * f)
        self.project = project
    def forward(self, x):
        r = self.proj_bn(self.proj_conv(x)) if self.project else x
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(r + self.bn3(self.conv3(y)))

class ResNet50(nn.Module):
    """init2winit's: no ReLU between the first normalization and the max-pooling."""
    def __init__(self, f=2, classes=10, relu=False):
        super().__init__()
        self.init_conv, self.init_bn = nn.Conv2d(3, f, 7, 2, 3, bias=False), nn.BatchNorm2d(f)
        self.pool, self.relu = nn.MaxPool2d(3, 2, 1), relu
        blocks, c = [], f
        for i, n in enumerate((3, 4, 6, 3)):
            for j in range(n):
                blocks.append(Bottleneck(c, f << i, 2 if i and not j else 1, not j))
                c = 4 * (f << i)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(c, classes)
    def forward(self, image):
        x = self.init_bn(self.init_conv(image))
        x = self.pool(F.relu(x) if self.relu else x)
        for b in self.blocks:
            x = b(x)
        return self.head(x.mean((2, 3)))

class ShiftNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.shift, self.d = nn.Parameter(torch.zeros(d)), d
    def forward(self, x):
        x = x - self.shift
        x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt(((x * x).mean(-1, keepdim=True) * math.sqrt(self.d)).clamp(min=1))

class Cell(nn.Module):
    def __init__(self, hid, mem):
        super().__init__()
        self.core, self.out = nn.Linear(2 * hid, 4 * mem), nn.Linear(mem, hid)
        self.norm_in, self.norm_mem = ShiftNorm(2 * hid), ShiftNorm(mem)
        self.hid, self.mem = hid, mem
    def forward(self, x, recur, memory):
        z = self.core(self.norm_in(torch.cat([recur, x], -1)))
        i, j, f, o = z.chunk(4, -1)
        gate = torch.sigmoid(f + 1)
        memory = memory * (1 - gate) + (torch.tanh(j) / (1 + torch.exp(i))).clamp(-1, 1)
        recur = self.out(self.norm_mem(memory) * (2 * torch.sigmoid(o)))
        return recur, memory

class LSTM(nn.Module):
    """The cell of the authors' language model, unrolled."""
    def __init__(self, hid=4, mem=10, vocab=11, length=3):
        super().__init__()
        self.embed, self.cell = nn.Embedding(vocab, hid), Cell(hid, mem)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.hid, self.mem, self.length = hid, mem, length
    def forward(self, input_ids, recur, memory):
        x, y = self.embed(input_ids), []
        for t in range(self.length):
            recur, memory = self.cell(x[:, t], recur, memory)
            y.append(recur)
        y = F.dropout(torch.stack(y, 1), 0.5, self.training)
        return F.linear(y, self.embed.weight, self.bias)

class DecoderLayer(nn.Module):
    def __init__(self, d, m, heads):
        super().__init__()
        self.ln1, self.ln2, self.heads = RMSNorm(d), RMSNorm(d), heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(d, m, bias=False), nn.Linear(d, m, bias=False), nn.Linear(m, d, bias=False)
    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)
    def forward(self, x):
        y = self.ln1(x)
        c = F.scaled_dot_product_attention(self.split(self.q(y)), self.split(self.k(y)), self.split(self.v(y)), is_causal=True)
        x = x + self.o(c.transpose(1, 2).flatten(2))
        y = self.ln2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

class Decoder(nn.Module):
    """1.3 billion parameters."""
    def __init__(self, d=2048, m=5632, heads=16, vocab=32000, layers=24):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocab, d), RMSNorm(d)
        self.layers = nn.ModuleList(DecoderLayer(d, m, heads) for _ in range(layers))
        self.head = nn.Linear(d, vocab, bias=False)
    def forward(self, input_ids):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

class MnistCnn(nn.Module):
    def __init__(self, a=3, b=4, c=10):
        super().__init__()
        self.conv_0, self.conv_1 = nn.Conv2d(1, a, 3, padding=1), nn.Conv2d(a, b, 3, padding=1)
        self.dense_0, self.dense_1 = nn.Linear(b * 7 * 7, c), nn.Linear(c, 10)
    def forward(self, image):
        x = F.avg_pool2d(F.relu(self.conv_0(image)), 2)
        x = F.avg_pool2d(F.relu(self.conv_1(x)), 2)
        return self.dense_1(F.relu(self.dense_0(x.flatten(1))))

def ids(*shape, top=9):
    return torch.randint(0, top, shape)

NETS = {
    'bert': (lambda: Bert(), (ids(2, 7), ids(2, 7, top=2), torch.ones(2, 7, dtype=torch.int64))),
    'rope': (lambda: Bert(rope=True), (ids(2, 7), ids(2, 7, top=2), torch.ones(2, 7, dtype=torch.int64))),
    'rpe': (lambda: Bert(rpe=5, layers=1), (ids(2, 7), ids(2, 7, top=2), torch.ones(2, 7, dtype=torch.int64))),
    't5': (lambda: T5(), (ids(2, 7), ids(2, 6))),
    'resnet50': (lambda: ResNet50(), (torch.rand(2, 3, 64, 64),)),
    'lstm': (lambda: LSTM(), (ids(2, 3), torch.zeros(2, 4), torch.zeros(2, 10))),
    'mnist': (lambda: MnistCnn(), (torch.rand(2, 1, 28, 28),)),
}


KEPT = ('pkg.torch.onnx.fx_node', 'pkg.torch.onnx.name_scopes', 'pkg.onnxscript')
SILENT = ('Reshape', 'Transpose', 'Shape', 'Gather', 'Concat', 'Constant', 'Cast', 'Slice', 'Split', 'Squeeze', 'Unsqueeze', 'Expand')


def strip(path, outside):
    m = onnx.load(path, load_external_data=False)
    told = [v for v in m.graph.value_info if v.metadata_props and v.name in {t.name for t in m.graph.initializer}]
    del m.graph.value_info[:]
    m.graph.value_info.extend(told)
    weights = {t.name for t in m.graph.initializer if len(t.dims)}
    for node in m.graph.node:
        node.doc_string = ''
        kept = [(p.key, p.value) for p in node.metadata_props if p.key.startswith(KEPT)]
        if node.op_type in SILENT and not weights & set(node.input):
            kept = []
        del node.metadata_props[:]
        for key, value in kept:
            node.metadata_props.add(key=key, value=value)
    if outside:
        move_weights(m, 'weights.bin')
    onnx.save(m, path)


def export(name, make, args):
    names = list(inspect.signature(make().forward).parameters)[:len(args)]
    for train in (True, False):
        torch.manual_seed(1)
        net = make().train(train)
        older = dict(training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False) if train else {}
        newer = dict(optimize=False) if train else {}
        for dynamo, options in ((False, older), (True, newer)):
            path = f"{name}_{'dynamo' if dynamo else 'script'}_{'train' if train else 'default'}.onnx"
            if dynamo:
                options = dict(options, external_data=False)
            torch.onnx.export(net, args, path, input_names=names, dynamo=dynamo, verbose=False, **options)
            strip(path, name == 'resnet50')


def billion():
    with torch.device('meta'):
        net = Decoder()
    net = net.to_empty(device='cpu')
    program = torch.onnx.export(net, (ids(2, 8),), input_names=['input_ids'], dynamo=True, optimize=False, verbose=False)
    end = 0
    for value in program.model.graph.initializers.values():
        size = value.const_value.nbytes
        if size > 1024:
            value.const_value = ir.ExternalTensor('billion.bin', end, size, value.dtype, shape=value.shape, name=value.name)
            end += size
    ir.save(program.model, 'billion.onnx')
    strip('billion.onnx', False)
    print('billion.bin has', end, 'bytes')


if 'billion' in sys.argv:
    billion()
for name, (make, args) in NETS.items():
    if len(sys.argv) < 2 or name in sys.argv[1:]:
        export(name, make, args)
