// dot.c: checks matrix products of every shape and view, with maps before and after.
// They equal the evaluator on the widest vectors of this machine and on narrower ones, with workers
// in any order, alone or in gangs, and so they do with operands rounded to bf16.
#include "emitted.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A graph in the notation: `slot` lines and one output. `depth` is the number of products per sum.
static const struct Case {
	const char *name;
	int depth;
	const char *text;
} cases[] = {
#define PRODUCT(kind, m, k, n, a, b, product)                                                      \
	{                                                                                          \
		kind " " #m "x" #k "x" #n, k,                                                      \
		    "graph " kind "\nslot a : input f32[" a "]\nslot b : input f32[" b             \
		    "]\nout y = " product "\n"                                                     \
	}
#define WINOGRAD(channels) (36 * (channels)) // products at 36 points
#define NN(m, k, n)        PRODUCT("nn", m, k, n, #m "," #k, #k "," #n, "dot(a, b)")
    NN(1, 1, 1),
    NN(1, 7, 1),
    NN(1, 64, 33),
    NN(33, 64, 1),
    NN(2, 3, 5),
    NN(5, 1, 40),
    NN(13, 16, 16),
    NN(14, 4, 32),
    NN(15, 5, 33),
    NN(28, 9, 17),
    NN(29, 17, 10),
    NN(64, 64, 48),
    NN(100, 37, 100),
    NN(128, 256, 96),
    NN(130, 512, 70),
    NN(3, 2500, 5),
    NN(31, 3000, 65),
    NN(100, 3000, 65),
    NN(257, 1030, 129),
    NN(60, 64, 3000),
    NN(32, 700, 3000),
    NN(2000, 8, 12),
    NN(3, 0, 5),
    NN(1500, 40, 1),
    NN(1, 700, 1),
#define NT(m, k, n) PRODUCT("nt", m, k, n, #m "," #k, #n "," #k, "dot(a, permute(b; [1,0]))")
    NT(5, 7, 9),
    NT(64, 64, 64),
    NT(100, 100, 100),
    NT(61, 1100, 77),
    NT(1, 512, 300),
    NT(1, 16, 16), // few rows meet columns in place from here on
    NT(7, 48, 96),
    NT(2, 1008, 32),
    NT(8, 4096, 512),
    {"few rows by columns, maps and their sums after", 160,
     "graph few\nslot a : input f32[6,400]\nslot b : input f32[64,160]\nslot c : input f32[64]\n"
     "%1 = slice(a; [0,32], [6,160], [1,1]) : f32[6,160]\n"
     "%2 = max(dot(%1, permute(b; [1,0])) + reshape(c; [1,64]), 0) : f32[6,64]\n"
     "out y = %2\nout s = sum(%2; [0]) * 0.125\n"},
    NT(700, 100, 90),
#define TN(m, k, n) PRODUCT("tn", m, k, n, #k "," #m, #k "," #n, "dot(permute(a; [1,0]), b)")
    TN(5, 7, 9),
    TN(64, 64, 64),
    TN(100, 100, 100),
    TN(50, 1030, 65),
    TN(170, 1100, 300),
    {"fewer rows than a matrix register has, in memory", 1030,
     "graph few\nslot a : input bf16[1030,4]\nslot b : input bf16[1030,16]\n"
     "out y = dot(permute(a; [1,0]), b)\n"},
    {"few rows in lines, the last vectors of which do not exist", 80,
     "graph lines\nslot b : input f32[80,8]\nslot a : input f32[2,3,40]\n"
     "%1 = reshape(permute(a; [0,2,1]); [80,3]) : f32[80,3]\n"
     "out y = dot(permute(%1; [1,0]), b)\n"},
    {"tt 45x67x89", 67,
     "graph tt\nslot a : input f32[67,45]\nslot b : input f32[89,67]\n"
     "out y = dot(permute(a; [1,0]), permute(b; [1,0]))\n"},
    {"tt 300x60x450", 60,
     "graph tt\nslot a : input f32[60,300]\nslot b : input f32[450,60]\n"
     "out y = dot(permute(a; [1,0]), permute(b; [1,0]))\n"},
    {"maps before, packed for many", 120,
     "graph maps\nslot a : input f32[150,120]\nslot b : input f32[120,400]\n"
     "out y = dot(act(a; tanh), act(b; tanh))\n"},
    {"one matrix after a map by matrices", 40,
     "graph stretch\nslot a : input f32[1,96,40]\nslot b : input f32[9,40,200]\n"
     "out y = dot(act(a; tanh), b)\n"},
    {"two turned matrices", 300,
     "graph turned\nslot a : input f32[2,300,100]\nslot b : input f32[2,300,280]\n"
     "out y = dot(permute(a; [0,2,1]), b)\n"},
    {"batch of matrices", 24,
     "graph batch\nslot a : input f32[3,4,20,24]\nslot b : input f32[3,4,24,18]\n"
     "out y = dot(a, b)\n"},
    {"many small matrices", 6,
     "graph many\nslot a : input f32[5000,5,6]\nslot b : input f32[5000,6,7]\n"
     "out y = dot(a, b)\n"},
    {"matrices by one matrix", 24,
     "graph rows\nslot a : input f32[3,4,20,24]\nslot b : input f32[1,1,24,18]\n"
     "out y = dot(a, b)\n"},
    {"one matrix by matrices", 24,
     "graph stretch\nslot a : input f32[1,1,20,24]\nslot b : input f32[3,4,24,18]\n"
     "out y = dot(a, b)\n"},
    {"stretched either way", 24,
     "graph both\nslot a : input f32[3,1,20,24]\nslot b : input f32[1,4,24,18]\n"
     "out y = dot(a, b)\n"},
    {"heads: queries by keys", 16,
     "graph qk\nslot qkv : input f32[2,24,96]\n"
     "%1 = permute(reshape(slice(qkv; [0,0,0], [2,24,32], [1,1,1]); [2,24,2,16]); [0,2,1,3]) : "
     "f32[2,2,24,16]\n"
     "%2 = permute(reshape(slice(qkv; [0,0,32], [2,24,32], [1,1,1]); [2,24,2,16]); [0,2,3,1]) : "
     "f32[2,2,16,24]\n"
     "out y = dot(%1, %2) * 0.25\n"},
    {"heads: weights by values", 24,
     "graph pv\nslot p : input f32[2,2,24,24]\nslot v : input f32[2,24,32]\n"
     "%1 = permute(reshape(v; [2,24,2,16]); [0,2,1,3]) : f32[2,2,24,16]\n"
     "out y = dot(p, %1)\n"},
    {"heads joined", 32,
     "graph join\nslot h : input f32[2,2,24,16]\nslot w : input f32[32,40]\n"
     "%1 = reshape(permute(h; [0,2,1,3]); [48,32]) : f32[48,32]\n"
     "out y = dot(%1, w)\n"},
    {"heads of 10, joined", 30,
     "graph join\nslot h : input f32[2,3,7,10]\nslot w : input f32[30,40]\n"
     "%1 = reshape(permute(h; [0,2,1,3]); [14,30]) : f32[14,30]\n"
     "out y = dot(%1, w)\n"},
    {"a convolution", 27,
     "graph conv\nslot x : input f32[2,3,9,11]\nslot w : input f32[8,27]\n"
     "%1 = window(x; [2,9,3,1,1,1,1, 3,11,3,1,1,1,1], 0) : f32[2,3,9,11,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,4,5,2,3]); [2,27,99]) : f32[2,27,99]\n"
     "out y = dot(reshape(w; [1,8,27]), %2)\n"},
    {"a convolution with steps", 75,
     "graph conv\nslot x : input f32[2,3,16,32]\nslot w : input f32[20,75]\n"
     "%1 = window(x; [2,8,5,2,1,2,1, 3,16,5,2,1,2,1], 0) : f32[2,3,8,16,5,5]\n"
     "%2 = reshape(permute(%1; [0,1,4,5,2,3]); [2,75,128]) : f32[2,75,128]\n"
     "out y = dot(reshape(w; [1,20,75]), %2)\n"},
    {"the gradient of its kernel", 198,
     "graph conv_kernel\nslot x : input f32[2,3,9,11]\nslot g : input f32[2,8,99]\n"
     "%1 = window(x; [2,9,3,1,1,1,1, 3,11,3,1,1,1,1], 0) : f32[2,3,9,11,3,3]\n"
     "%2 = reshape(permute(%1; [0,2,3,1,4,5]); [198,27]) : f32[198,27]\n"
     "out y = dot(reshape(permute(g; [1,0,2]); [8,198]), %2)\n"},
    {"windows, channels last", 180,
     "graph last\nslot x : input f32[2,13,17,20]\nslot w : input f32[180,40]\n"
     "%1 = window(x; [1,13,3,1,1,1,1, 2,17,3,1,1,1,1], 0) : f32[2,13,17,20,3,3]\n"
     "out y = max(dot(reshape(permute(%1; [0,1,2,4,5,3]); [442,180]), w), 0)\n"},
    {"windows with steps and gaps, channels last", 90,
     "graph gaps\nslot x : input f32[2,19,33,10]\nslot w : input f32[90,35]\n"
     "%1 = window(x; [1,9,3,2,2,1,1, 2,10,3,3,3,0,1], 0) : f32[2,9,10,10,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,4,5,3]); [180,90]), w)\n"},
    {"windows that run backward, channels first", 54,
     "graph back\nslot x : input f32[3,6,11,5]\nslot w : input f32[54,33]\n"
     "%1 = window(x; [2,13,3,1,-1,0,1, 3,7,3,1,-1,0,1], 0) : f32[3,6,13,7,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,2,3,4,5,1]); [273,54]), w)\n"},
    {"windows of few columns, a long sum", 6300,
     "graph deep\nslot x : input f32[2,7,7,700]\nslot w : input f32[6300,32]\n"
     "%1 = window(x; [1,7,3,1,1,1,1, 2,7,3,1,1,1,1], 0) : f32[2,7,7,700,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,4,5,3]); [98,6300]), w)\n"},
    {"windows whose channels are a prime number", 9279,
     "graph prime\nslot x : input f32[2,5,6,1031]\nslot w : input f32[9279,40]\n"
     "%1 = window(x; [1,5,3,1,1,1,1, 2,6,3,1,1,1,1], 0) : f32[2,5,6,1031,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,4,5,3]); [60,9279]), w)\n"},
    {"windows of a line", 48,
     "graph line\nslot x : input f32[3,100,16]\nslot w : input f32[48,50]\n"
     "%1 = window(x; [1,51,3,2,1,2,1], 0) : f32[3,51,16,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,3,2]); [153,48]), w)\n"},
    {"windows of a block", 108,
     "graph block\nslot x : input f32[2,5,6,4,4]\nslot w : input f32[108,34]\n"
     "%1 = window(x; [1,5,3,1,1,1,1, 2,6,3,1,1,1,1, 3,4,3,1,1,1,1], 0) : "
     "f32[2,5,6,4,4,3,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,3,5,6,7,4]); [240,108]), w)\n"},
    {"windows wider than their image", 63,
     "graph narrow\nslot x : input f32[3,1,8,7]\nslot w : input f32[63,20]\n"
     "%1 = window(x; [1,1,3,1,1,1,1, 2,6,3,1,1,0,1], 0) : f32[3,1,6,7,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,4,5,3]); [18,63]), w)\n"},
    {"windows by groups", 45,
     "graph groups\nslot x : input f32[2,3,5,9,8]\nslot w : input f32[1,3,45,33]\n"
     "%1 = window(x; [3,9,3,1,1,1,1, 4,8,3,1,1,1,1], 0) : f32[2,3,5,9,8,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,3,4,5,6,2]); [2,3,72,45]), w)\n"},
    {"windows by groups of few channels", 72,
     "graph narrow\nslot x : input f32[2,6,8,9,8]\nslot w : input f32[1,6,72,8]\n"
     "slot g : input f32[2,6,72,8]\n"
     "%1 = window(x; [3,9,3,1,1,1,1, 4,8,3,1,1,1,1], 0) : f32[2,6,8,9,8,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,3,4,5,6,2]); [2,6,72,72]), w)\n"
     "out z = dot(g, permute(w; [0,1,3,2]))\n"},
    {"the gradient of kernels by groups of few channels", 144,
     "graph narrow\nslot x : input f32[2,9,8,24]\nslot g : input f32[1,6,144,8]\n"
     "%1 = permute(reshape(x; [2,9,8,6,4]); [0,3,4,1,2]) : f32[2,6,4,9,8]\n"
     "%2 = window(%1; [3,9,3,1,1,1,1, 4,8,3,1,1,1,1], 0) : f32[2,6,4,9,8,3,3]\n"
     "%3 = reshape(permute(%2; [0,1,3,4,5,6,2]); [2,6,72,36]) : f32[2,6,72,36]\n"
     "%4 = reshape(permute(%3; [1,0,2,3]); [1,6,144,36]) : f32[1,6,144,36]\n"
     "out y = dot(permute(%4; [0,1,3,2]), g)\n"},
    {"windows of what is computed", 180,
     "graph computed\nslot x : input f32[2,9,8,20]\nslot c : input f32[1,1,1,20]\n"
     "slot w : input f32[180,40]\n"
     "%1 = window(max(x * c, 0); [1,9,3,1,1,1,1, 2,8,3,1,1,1,1], 0.5) : f32[2,9,8,20,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,4,5,3]); [144,180]), w)\n"},
    {"many panels, and sums of their columns", 75,
     "graph panels\nslot a : input f32[70,75]\nslot b : input f32[75,333]\n"
     "slot c : input f32[1,333]\n%1 = dot(a, b) : f32[70,333]\n"
     "out y = max(%1 + c, 0)\nout s = sum(%1 * 0.05; [0])\n"},
    {"many panels, and sums of their rows", 700,
     "graph panels\nslot a : input f32[75,205]\nslot b : input f32[75,700]\n"
     "slot c : input f32[1,700]\n%1 = dot(permute(a; [1,0]), b) : f32[205,700]\n"
     "out y = max(%1 + c, 0)\nout s = sum(%1 * 0.05; [1])\nout t = amax(abs(%1); [1])\n"},
    {"blocks of a long sum, and sums of rows", 3000,
     "graph blocks\nslot a : input f32[270,3000]\nslot b : input f32[333,3000]\n"
     "%1 = dot(a, permute(b; [1,0])) : f32[270,333]\n"
     "out y = max(%1, 0)\nout s = sum(%1 * %1 * 0.001; [1])\n"},
    {"few rows by columns in place, and sums of rows", 9008,
     "graph low\nslot a : input f32[8,64]\nslot b : input f32[9008,64]\n"
     "%1 = dot(a, permute(b; [1,0])) : f32[8,9008]\nout y = %1\nout s = sum(%1 * 0.01; [1])\n"},
    {"few rows, and sums of them", 9000,
     "graph low\nslot a : input f32[8,64]\nslot b : input f32[64,9000]\n"
     "%1 = dot(a, b) : f32[8,9000]\nout y = %1\nout s = sum(%1 * 0.01; [1])\n"},
    {"sums of exponentials of rows, which need the largest", 333,
     "graph exponentials\nslot a : input f32[270,60]\nslot b : input f32[60,333]\n"
     "%1 = dot(a, b) : f32[270,333]\n%2 = amax(%1; [1]) : f32[270,1]\n"
     "%3 = sum(exp(%1 - %2); [1]) : f32[270,1]\nout y = %1\nout s = %2 + log(%3)\n"},
    {"squares of windows, and sums of their rows", WINOGRAD(20),
     "graph squares\nslot x : input f32[2,30,31,20]\nslot w : input f32[180,40]\n"
     "%1 = window(max(x, 0); [1,30,3,1,1,1,1, 2,31,3,1,1,1,1], 0.5) : f32[2,30,31,20,3,3]\n"
     "%2 = dot(reshape(permute(%1; [0,1,2,4,5,3]); [1860,180]), w) : f32[1860,40]\n"
     "out y = max(%2, 0)\nout s = sum(%2 * 0.01; [1])\n"},
    {"squares of windows, and sums of them", WINOGRAD(20),
     "graph squares\nslot x : input f32[2,30,31,20]\nslot w : input f32[180,40]\n"
     "slot c : input f32[1,40]\n"
     "%1 = window(max(x, 0); [1,30,3,1,1,1,1, 2,31,3,1,1,1,1], 0.5) : f32[2,30,31,20,3,3]\n"
     "%2 = dot(reshape(permute(%1; [0,1,2,4,5,3]); [1860,180]), w) : f32[1860,40]\n"
     "out y = max(%2 + c, 0)\nout s = sum(%2 * 0.0005; [0])\n"},
    {"squares of windows, a few channels at a time", WINOGRAD(512),
     "graph squares\nslot x : input f32[1,8,19,512]\nslot w : input f32[4608,260]\n"
     "slot c : input f32[1,260]\n"
     "%1 = window(x; [1,8,3,1,1,1,1, 2,19,3,1,1,1,1], 0.5) : f32[1,8,19,512,3,3]\n"
     "%2 = dot(reshape(permute(%1; [0,1,2,4,5,3]); [152,4608]), w) : f32[152,260]\n"
     "out y = max(%2 + c, 0)\nout s = sum(%2 * 0.0005; [0])\n"},
    {"squares of windows that run backward", WINOGRAD(32),
     "graph squares\nslot x : input f32[1,40,37,32]\nslot w : input f32[288,33]\n"
     "%1 = window(x; [1,42,3,1,-1,0,1, 2,39,3,1,-1,0,1], 0) : f32[1,42,39,32,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,4,5,3]); [1638,288]), w)\n"},
    {"squares of windows by groups", WINOGRAD(16),
     "graph squares\nslot x : input f32[2,2,44,45,16]\nslot w : input f32[1,2,144,33]\n"
     "%1 = window(x; [2,44,3,1,1,1,1, 3,45,3,1,1,1,1], 0) : f32[2,2,44,45,16,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,3,5,6,4]); [2,2,1980,144]), w)\n"},
    {"the gradient of a kernel by squares, in parts", WINOGRAD(60),
     "graph squares\nslot x : input f32[3,27,26,40]\nslot g : input f32[2106,31]\n"
     "slot c : input f32[1,31]\n"
     "%1 = window(max(x, 0); [1,27,3,1,1,1,1, 2,26,3,1,1,1,1], 0.5) : f32[3,27,26,40,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [2106,360]) : f32[2106,360]\n"
     "out y = dot(permute(%2; [1,0]), g * c) * c\n"},
    {"the gradient of a kernel by squares, and sums of it", WINOGRAD(48),
     "graph squares\nslot x : input f32[1,20,28,88]\nslot g : input f32[660,96]\n"
     "%1 = window(x; [1,22,3,1,-1,0,1, 2,30,3,1,-1,0,1], 0) : f32[1,22,30,88,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [660,792]) : f32[660,792]\n"
     "%3 = dot(permute(%2; [1,0]), g) : f32[792,96]\n"
     "out y = max(%3, 0)\nout s = sum(%3 * 0.0005; [0])\n"},
    {"the gradient of kernels by squares, in groups", WINOGRAD(36),
     "graph squares\nslot x : input f32[1,4,24,24,32]\nslot g : input f32[1,4,576,32]\n"
     "%1 = window(x; [2,24,3,1,1,1,1, 3,24,3,1,1,1,1], 0) : f32[1,4,24,24,32,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,3,5,6,4]); [1,4,576,288]) : f32[1,4,576,288]\n"
     "out y = dot(permute(%2; [0,1,3,2]), g)\n"},
    {"the gradient of a kernel, in parts", 5000,
     "graph parts\nslot x : input f32[8,28,30,20]\nslot g : input f32[6720,40]\n"
     "slot c : input f32[1,40]\n"
     "%1 = window(x; [1,28,3,1,1,1,1, 2,30,3,1,1,1,1], 0) : f32[8,28,30,20,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [6720,180]) : f32[6720,180]\n"
     "out y = dot(permute(%2; [1,0]), g) * c\n"},
    {"the gradient of a kernel, by images", 294,
     "graph images\nslot x : input f32[6,7,7,150]\nslot g : input f32[294,130]\n"
     "%1 = window(x; [1,7,3,1,1,1,1, 2,7,3,1,1,1,1], 0) : f32[6,7,7,150,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [294,1350]) : f32[294,1350]\n"
     "out y = dot(permute(%2; [1,0]), g)\n"},
    {"the gradient of a kernel with steps, in parts", 1000,
     "graph stepped\nslot x : input f32[4,41,42,30]\nslot g : input f32[1680,70]\n"
     "%1 = window(x; [1,20,3,2,1,0,1, 2,21,3,2,1,1,1], 0) : f32[4,20,21,30,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [1680,270]) : f32[1680,270]\n"
     "out y = dot(permute(%2; [1,0]), g)\n"},
    {"the gradient of a large kernel", 162,
     "graph large\nslot x : input f32[2,9,9,60]\nslot g : input f32[162,520]\n"
     "%1 = window(x; [1,9,3,1,1,1,1, 2,9,3,1,1,1,1], 0) : f32[2,9,9,60,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [162,540]) : f32[162,540]\n"
     "out y = dot(permute(%2; [1,0]), g)\n"},
    {"a long sum of a small result", 40000,
     "graph long_small\nslot a : input f32[40000,9]\nslot b : input f32[40000,33]\n"
     "out y = dot(permute(a; [1,0]), b)\n"},
    {"windows in short lines, several of which a matrix register has", 288,
     "graph lines\nslot x : input f32[3,7,7,32]\nslot w : input f32[288,40]\n"
     "%1 = window(x; [1,7,3,1,1,1,1, 2,7,3,1,1,1,1], 0) : f32[3,7,7,32,3,3]\n"
     "%2 = permute(%1; [0,1,2,4,5,3]) : f32[3,7,7,3,3,32]\n"
     "out y = dot(reshape(%2; [147,288]), w)\n"},
    {"windows in lines of three, a long sum", 9216,
     "graph short\nslot x : input f32[2,9,3,1024]\nslot w : input f32[9216,40]\n"
     "%1 = window(x; [1,9,3,1,1,1,1, 2,3,3,1,-1,-1,1], 0) : f32[2,9,3,1024,3,3]\n"
     "%2 = permute(%1; [0,1,2,4,5,3]) : f32[2,9,3,3,3,1024]\n"
     "out y = dot(reshape(%2; [54,9216]), w) + 1\n"},
    {"windows with steps in short lines", 256,
     "graph steps\nslot x : input f32[2,8,8,64]\nslot w : input f32[256,40]\n"
     "%1 = window(x; [1,4,2,2,1,0,1, 2,4,2,2,1,0,1], 0) : f32[2,4,4,64,2,2]\n"
     "%2 = permute(%1; [0,1,2,4,5,3]) : f32[2,4,4,2,2,64]\n"
     "out y = dot(reshape(%2; [32,256]), w)\n"},
    {"windows by overlapping lines of 32", 224,
     "graph overlapping\nslot x : input f32[2,19,120]\nslot w : input f32[224,40]\n"
     "%1 = window(x; [1,7,7,2,1,0,1, 2,14,32,6,1,0,1], 0) : f32[2,7,14,7,32]\n"
     "out y = dot(reshape(%1; [196,224]), w)\n"},
    {"the gradient of a kernel by overlapping lines", 196,
     "graph overlapping\nslot x : input f32[2,19,120]\nslot g : input f32[40,196]\n"
     "%1 = window(x; [1,7,7,2,1,0,1, 2,14,32,6,1,0,1], 0) : f32[2,7,14,7,32]\n"
     "out y = dot(g, reshape(%1; [196,224]))\n"},
    {"windows with steps, from a patch of slices", 576,
     "graph steps\nslot x : input f32[2,27,29,64]\nslot w : input f32[576,50]\n"
     "%1 = window(x; [1,14,3,2,1,1,1, 2,15,3,2,1,1,1], 0) : f32[2,14,15,64,3,3]\n"
     "%2 = permute(%1; [0,1,2,4,5,3]) : f32[2,14,15,3,3,64]\n"
     "out y = dot(reshape(%2; [420,576]), w)\n"},
    {"windows in lines of four, whose slices are copied", 1024,
     "graph steps\nslot x : input f32[5,8,8,64]\nslot w : input f32[1024,50]\n"
     "%1 = window(x; [1,4,4,2,1,1,1, 2,4,4,2,1,1,1], 0) : f32[5,4,4,64,4,4]\n"
     "%2 = permute(%1; [0,1,2,4,5,3]) : f32[5,4,4,4,4,64]\n"
     "out y = dot(reshape(%2; [80,1024]), w)\n"},
    {"windows of lines that are computed, from a patch of slices", 480,
     "graph line\nslot x : input f32[2,70,96]\nslot w : input f32[480,50]\n"
     "%1 = window(max(x, 0); [1,66,5,1,1,0,1], 0) : f32[2,66,96,5]\n"
     "out y = dot(reshape(permute(%1; [0,1,3,2]); [132,480]), w)\n"},
    {"the gradient of a kernel with steps, by slices", 162,
     "graph steps\nslot x : input f32[2,18,17,40]\nslot g : input f32[162,70]\n"
     "%1 = window(x; [1,9,3,2,1,1,1, 2,9,3,2,1,1,1], 0) : f32[2,9,9,40,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [162,360]) : f32[162,360]\n"
     "out y = dot(permute(g; [1,0]), %2)\n"},
    {"full rows of strips, a residual, and sums of columns", 64,
     "graph rows\nslot a : input f32[270,64]\nslot b : input f32[64,256]\n"
     "slot c : input f32[270,256]\n%1 = dot(a, b) + c : f32[270,256]\n"
     "out y = %1\nout s = sum(%1 * 0.01; [0])\n"},
    {"windows of doubles", 63,
     "graph wide\nslot x : input f64[2,9,11,7]\nslot w : input f64[63,20]\n"
     "%1 = window(x; [1,9,3,1,1,1,1, 2,11,3,1,1,1,1], 0) : f64[2,9,11,7,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,4,5,3]); [198,63]), w)\n"},
    {"windows of three channels", 147,
     "graph stem\nslot x : input f32[2,3,30,34]\nslot w : input f32[147,40]\n"
     "%1 = window(x; [2,15,7,2,1,3,1, 3,17,7,2,1,3,1], 0) : f32[2,3,15,17,7,7]\n"
     "out y = dot(reshape(permute(%1; [0,2,3,4,5,1]); [510,147]), w)\n"},
    {"windows of three channels, packed for the other side", 27,
     "graph stem\nslot x : input f32[2,9,8,3]\nslot w : input f32[70,27]\n"
     "%1 = window(x; [1,9,3,1,1,1,1, 2,8,3,1,1,1,1], 0) : f32[2,9,8,3,3,3]\n"
     "out y = dot(reshape(permute(%1; [0,1,2,4,5,3]); [144,27]), permute(w; [1,0]))\n"},
    {"the gradient of a kernel, odd lines", 441,
     "graph odd\nslot x : input f32[9,7,7,50]\nslot g : input f32[441,36]\n"
     "%1 = window(x; [1,7,3,1,1,1,1, 2,7,3,1,1,1,1], 0) : f32[9,7,7,50,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [441,450]) : f32[441,450]\n"
     "out y = dot(permute(%2; [1,0]), g)\n"},
    {"the gradient of a kernel, with steps", 300,
     "graph odd_steps\nslot x : input f32[2,20,30,17]\nslot g : input f32[300,36]\n"
     "%1 = window(x; [1,10,3,2,1,1,1, 2,15,3,2,1,1,1], 0) : f32[2,10,15,17,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [300,153]) : f32[300,153]\n"
     "out y = dot(permute(%2; [1,0]), g)\n"},
    {"bias and gelu", 40,
     "graph gelu\nslot a : input f32[37,40]\nslot b : input f32[40,50]\nslot c : input f32[1,50]\n"
     "out y = act(dot(a, b) + c; gelu)\n"},
    {"residual", 40,
     "graph residual\nslot a : input f32[37,40]\nslot b : input f32[40,50]\nslot c : input "
     "f32[37,50]\n"
     "out y = dot(a, b) * 0.5 + c\n"},
    {"two outs", 40,
     "graph outs\nslot a : input f32[37,40]\nslot b : input f32[40,50]\nslot c : input f32[1,50]\n"
     "%1 = dot(a, b) + c : f32[37,50]\n"
     "out x = %1\nout y = max(%1, 0)\n"},
    {"long sums, then maps", 2100,
     "graph long\nslot a : input f32[37,2100]\nslot b : input f32[2100,50]\nslot c : input "
     "f32[1,50]\n"
     "out y = max(dot(a, b) + c, 0)\n"},
    {"maps before", 40,
     "graph before\nslot a : input f32[37,40]\nslot b : input f32[40,50]\nslot c : input "
     "f32[37,1]\n"
     "out y = dot(max(a, 0) * c, b + 1)\n"},
    {"a mask before, turned", 37,
     "graph mask\nslot a : input f32[37,40]\nslot h : input f32[37,40]\nslot b : input f32[37,50]\n"
     "%1 = select(0 < h, a, 0 * a) : f32[37,40]\n"
     "out y = dot(permute(%1; [1,0]), b)\n"},
    {"panels of matrix registers, four wide", 192,
     "graph pairs\nslot a : input f32[13,192]\nslot b : input f32[5,6,4,16,16,2]\n"
     "out y = dot(a, reshape(permute(b; [1,3,5,0,2,4]); [192,320]))\n"},
    {"panels of matrix registers, two wide, in blocks", 1088,
     "graph pairs\nslot a : input f32[45,1088]\nslot b : input f32[3,34,2,16,16,2]\n"
     "out y = dot(a, reshape(permute(b; [1,3,5,0,2,4]); [1088,96]))\n"},
    {"panels of matrix registers, more than sums are held", 96,
     "graph pairs\nslot a : input f32[32,96]\nslot b : input f32[12,3,2,16,16,2]\n"
     "out y = dot(a, reshape(permute(b; [1,3,5,0,2,4]); [96,384]))\n"},
    {"panels of matrix registers, the last not complete", 192,
     "graph pairs\nslot a : input f32[13,192]\nslot b : input f32[2,6,4,16,16,2]\n"
     "%1 = reshape(permute(b; [1,3,5,0,2,4]); [192,128]) : f32[192,128]\n"
     "out y = dot(a, slice(%1; [0,0], [192,100], [1,1]))\n"},
    {"panels of matrix registers, the last of rows and of columns not complete", 200,
     "graph pairs\nslot a : input f32[13,200]\nslot b : input f32[2,7,4,16,16,2]\n"
     "%1 = reshape(permute(b; [1,3,5,0,2,4]); [224,128]) : f32[224,128]\n"
     "out y = dot(a, slice(%1; [0,0], [200,100], [1,1]))\n"},
    {"panels in memory, the last not complete, and sums of their rows", 100,
     "graph panels\nslot a : input f32[13,75]\nslot b : input f32[4,75,32]\n"
     "%1 = reshape(permute(b; [1,0,2]); [75,128]) : f32[75,128]\n"
     "%2 = dot(a, slice(%1; [0,0], [75,100], [1,1])) : f32[13,100]\n"
     "out x = %2\nout y = sum(%2 * 0.05; [1])\n"},
    {"panels in memory, the last not complete, and sums of their columns", 75,
     "graph panels\nslot a : input f32[70,75]\nslot b : input f32[8,75,16]\n"
     "%1 = reshape(permute(b; [1,0,2]); [75,128]) : f32[75,128]\n"
     "%2 = dot(a, slice(%1; [0,0], [75,99], [1,1])) : f32[70,99]\n"
     "out x = %2\nout y = sum(%2 * 0.05; [0])\n"},
    {"columns of a wider matrix", 75,
     "graph columns\nslot a : input f32[13,75]\nslot b : input f32[75,128]\n"
     "out y = dot(a, slice(b; [0,5], [75,100], [1,1]))\n"},
    {"the last columns of a wider matrix", 75,
     "graph columns\nslot a : input f32[13,75]\nslot b : input f32[75,128]\n"
     "out y = dot(a, slice(b; [0,28], [75,100], [1,1]))\n"},
    {"panels of pairs along k", 1100,
     "graph pairs\nslot a : input f32[45,1100]\nslot b : input f32[3,550,32,2]\n"
     "out y = dot(a, reshape(permute(b; [1,3,0,2]); [1100,96]))\n"},
    {"doubles", 40,
     "graph doubles\nslot a : input f64[37,40]\nslot b : input f64[40,50]\n"
     "out y = dot(a, b)\n"},
};

static double random_number(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (double)(*state >> 33) * 0x1p-30 - 1;
}

static Array *small_slots(Arena *arena, const Graph *g)
{
	uint64_t state = 1;
	Array *slot = NEWS(arena, Array, g->slots.count);
	for (int s = 0; s < g->slots.count; s++) {
		const Slot *of = &g->slots.at[s];
		int64_t n = count_of(&of->shape);
		slot[s] = (Array){.type = of->type, .shape = of->shape};
		slot[s].f = NEWS(arena, double, n);
		for (int64_t i = 0; i < n; i++) {
			double x = random_number(&state);
			slot[s].f[i] = of->type == E_f64 ? x : (float)x;
		}
	}
	return slot;
}

// Rounding error of a sum of `depth` products below 1: partial sums wander to sqrt(depth) / 3, and
// errors likewise.
static double unit_of(Elem type, int depth)
{
	return (type == E_f64 ? 0x1p-52 : 0x1p-23) * (4 + depth / 4.0);
}

// Returns the graph as if all of its slots were parameters, with rounded products.
static const Graph *narrowed(Arena *arena, Graph *g, const Target *target)
{
	g->products = E_bf16;
	for (int s = 0; s < g->slots.count; s++)
		g->slots.at[s].kind = S_param;
	const Machine *machine = target_machine(target);
	g = graph_live(arena, decompose_pass(arena, g, machine));
	return graph_live(arena, precision_pass(arena, g, machine));
}

// The errors to expect where kernels round what they compute only nearly as the evaluator does.
static const double *expected_errors(Arena *arena, const Graph *g, const Array *slot)
{
	bool nearly = false, narrow = false;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		nearly |= val(g, r)->op == O_tanh || val(g, r)->op == O_exp;
		narrow |= val(g, r)->type == E_bf16;
	}
	return nearly && narrow ? rounding_errors(arena, g, slot, 0x1p-23)
	                        : NEWS(arena, double, g->outs.count);
}

static int check(const struct Case *c, const char *name, const char *mask, bool narrow)
{
	Arena *arena = arena_new();
	Graph *read = parse_graph(arena, c->name, c->text, book_builtin());
	const Target *target = target_named(arena, name, mask);
	const Graph *g = narrow ? narrowed(arena, read, target) : read;
	const char *what =
	    format(arena, "%s%s [%s%s]", c->name, narrow ? " in bf16" : "", name, mask ? mask : "");
	const Array *slot = small_slots(arena, g);
	const double *error = graph_errors(arena, g, slot, target, target_machine(target), what);
	const double *expected = expected_errors(arena, g, slot);
	int failed = 0;
	for (int o = 0; o < g->outs.count; o++) {
		double units =
		    (error[o] - expected[o]) / unit_of(val(g, g->outs.at[o].val)->type, c->depth);
		if (units < 4)
			continue;
		printf("FAILED %s out %d: error %g units\n", what, o, units);
		failed = 1;
	}
	arena_free(arena);
	return failed;
}

// Returns a number up to `most`, small ones as likely as large ones; often a multiple of 16.
static int64_t random_size(uint64_t *state, int64_t most)
{
	double x = (random_number(state) + 1) / 2;
	int64_t n = (int64_t)exp(x * log((double)most + 1));
	return random_number(state) < 0 && n > 16 ? n / 16 * 16 : MAX(1, n);
}

// Returns operand x of a product, of f32, from a slot of `type` in memory.
static const char *widened(Arena *arena, const char *x, const char *type)
{
	return !strcmp(type, "f32") ? x : format(arena, "cast(%s; f32)", x);
}

static const char *random_type(uint64_t *state)
{
	static const char *const types[] = {"f32", "f32", "bf16", "f16"};
	return types[(unsigned)((random_number(state) + 1) * 2) % COUNT(types)];
}

// Returns a product of random size, perhaps with maps before and after it.
static struct Case random_case(Arena *arena, uint64_t *state)
{
	enum { LARGEST = 4000, WORK = 1 << 26, RESULT = 1 << 20 };
	static const char *const before[] = {"%s", "max(%s, 0)", "%s * 0.5 + 0.25"};
	static const char *const after[] = {"out y = %1\n", "out y = max(%1 + c, 0)\n",
	                                    "out y = %1 * 0.5\nout s = sum(%1 * 0.01; [0])\n",
	                                    "out y = %1 * 0.5\nout s = sum(%1 * 0.01; [1])\n"};
	int64_t m = random_size(state, LARGEST), n = random_size(state, MIN(LARGEST, RESULT / m));
	int64_t k = random_size(state, MIN(LARGEST, WORK / (m * n)));
	const char *a_type = random_type(state), *b_type = random_type(state);
	unsigned kind = (unsigned)(*state >> 33);
	bool a_turned = kind % 3 == 2, b_turned = kind % 3 == 1;
	const char *form = before[kind / 3 % COUNT(before)];
	const char *a = format(arena, form, widened(arena, "a", a_type));
	const char *b = widened(arena, "b", b_type);
	// Sums of columns have m terms, those of rows n.
	struct Case c = {.depth = (int)MAX(k, MAX(m, n))};
	c.name = format(arena, "%s %lldx%lldx%lld of %s by %s",
	                a_turned   ? "tn"
	                : b_turned ? "nt"
	                           : "nn",
	                (long long)m, (long long)k, (long long)n, a, b);
	Text text = {.arena = arena};
	say(&text, "graph random\nslot a : input %s[%lld,%lld]\n", a_type,
	    (long long)(a_turned ? k : m), (long long)(a_turned ? m : k));
	say(&text, "slot b : input %s[%lld,%lld]\nslot c : input f32[1,%lld]\n", b_type,
	    (long long)(b_turned ? n : k), (long long)(b_turned ? k : n), (long long)n);
	say(&text, "%%1 = dot(%s%s%s, ", a_turned ? "permute(" : "", a, a_turned ? "; [1,0])" : "");
	say(&text, "%s%s%s) : f32[%lld,%lld]\n", b_turned ? "permute(" : "", b,
	    b_turned ? "; [1,0])" : "", (long long)m, (long long)n);
	say(&text, "%s", after[kind / 9 % COUNT(after)]);
	c.text = text.at;
	return c;
}

// Returns a convolution of random size over images with channels last, or its kernel's gradient.
static struct Case random_convolution(Arena *arena, uint64_t *state)
{
	enum { SIDE = 40, CHANNELS = 300, WORK = 1 << 25 };
	int64_t taps = 1 + (int64_t)(*state >> 33) % 4, stride = 1 + (int64_t)(*state >> 40) % 2;
	int64_t h = taps + random_size(state, SIDE), w = taps + random_size(state, SIDE);
	int64_t pad = (int64_t)(*state >> 33) % taps, batch = random_size(state, 4);
	int64_t high = (h + 2 * pad - taps) / stride + 1, wide = (w + 2 * pad - taps) / stride + 1;
	int64_t c = random_size(state, CHANNELS), k = taps * taps * c, m = batch * high * wide;
	int64_t n = random_size(state, MAX(1, MIN(CHANNELS, WORK / (m * k))));
	bool gradient = random_number(state) < 0, turned = random_number(state) < 0;
	const char *x_type = random_type(state), *w_type = random_type(state);
	struct Case of = {.depth = (int)MAX(k, m)};
	of.name = format(
	    arena, "%s%s of %s[%lld,%lld,%lld,%lld], %lld taps, stride %lld, pad %lld, %s to %lld",
	    turned && gradient ? "turned " : "", gradient ? "gradient" : "convolution", x_type,
	    (long long)batch, (long long)h, (long long)w, (long long)c, (long long)taps,
	    (long long)stride, (long long)pad, w_type, (long long)n);
	Text text = {.arena = arena};
	say(&text, "graph random\nslot x : input %s[%lld,%lld,%lld,%lld]\n", x_type,
	    (long long)batch, (long long)h, (long long)w, (long long)c);
	say(&text, "slot w : input %s[%lld,%lld]\n", w_type, (long long)(gradient ? m : k),
	    (long long)n);
	say(&text, "%%1 = window(%s; [1,%lld,%lld,%lld,1,%lld,1, 2,%lld,%lld,%lld,1,%lld,1], 0)",
	    widened(arena, "x", x_type), (long long)high, (long long)taps, (long long)stride,
	    (long long)pad, (long long)wide, (long long)taps, (long long)stride, (long long)pad);
	say(&text, " : f32[%lld,%lld,%lld,%lld,%lld,%lld]\n", (long long)batch, (long long)high,
	    (long long)wide, (long long)c, (long long)taps, (long long)taps);
	say(&text, "%%2 = reshape(permute(%%1; [0,1,2,4,5,3]); [%lld,%lld]) : f32[%lld,%lld]\n",
	    (long long)m, (long long)k, (long long)m, (long long)k);
	const char *factor = widened(arena, "w", w_type);
	if (gradient && turned)
		say(&text, "out y = dot(permute(%s; [1,0]), %%2)\n", factor);
	else if (gradient)
		say(&text, "out y = dot(permute(%%2; [1,0]), %s)\n", factor);
	else
		say(&text, "out y = max(dot(%%2, %s), 0)\n", factor);
	of.text = text.at;
	return of;
}

// Checks `count` random products on this machine's widest vectors and on matrix registers.
static int check_random(uint64_t seed, int count, int *tried)
{
	static const char *const targets[] = {"cpu", "amx:host"};
	int failed = 0;
	for (int i = 0; i < count; i++) {
		Arena *arena = arena_new();
		struct Case c =
		    i % 3 ? random_case(arena, &seed) : random_convolution(arena, &seed);
		for (int t = 0; t < 2 * COUNT(targets); t++, ++*tried)
			failed += check(&c, targets[t / 2], NULL, t % 2);
		arena_free(arena);
	}
	return failed;
}

// dot [NAME]: that case alone. dot random SEED COUNT: as many random products.
int main(int argc, char **argv)
{
	enum { RANDOM = 24 };
	static const char *const masks[] = {NULL, "-avx512bf16", "-avx512f",
	                                    "-avx512f,-avx2,-fma,-avx"};
	int failed = 0, tried = 0;
	bool random = argc == 4 && !strcmp(argv[1], "random");
	if (argc == 1 || random)
		failed += check_random(random ? (uint64_t)atoll(argv[2]) : 1,
		                       random ? atoi(argv[3]) : RANDOM, &tried);
	Arena *arena = arena_new();
	for (int m = 0; m < 2 * COUNT(masks); m++)
		for (int i = 0; i < COUNT(cases) && mask_applies(arena, masks[m / 2]); i++) {
			if (argc > 1 && strcmp(argv[1], cases[i].name))
				continue;
			failed += check(&cases[i], "cpu", masks[m / 2], m % 2);
			tried++;
		}
	for (int i = 0; i < COUNT(cases) && mask_applies(arena, "-avx512f"); i++)
		for (int narrow = 0; narrow < 2; narrow++) {
			if (argc > 1 && strcmp(argv[1], cases[i].name))
				continue;
			failed += check(&cases[i], "amx:host", NULL, narrow);
			tried++;
		}
	arena_free(arena);
	printf("%d products, %d wrong\n", tried, failed);
	return failed || !tried;
}
