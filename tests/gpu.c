// gpu.c: checks GPU kernels, most of them without a GPU, against the evaluator.
// gpu [sm_90a] cuda|rounded|ptx|registers|opencl|hip|hip_registers|mfma FILE...: graphs in the
// notation (those of jit.c) and models (.onnx), as a training step. cuda: on emulated threads, in
// random orders, where any one barrier, fence or wait left out is a race; and as PTX, which ptxas
// assembles, if it is installed, without spills, and in registers and shared memory for two blocks
// of a multiprocessor. rounded: the same with models' products of TF32, and of graphs that round
// within kernels. ptx: PTX alone; of the instructions of loops that multiply halves, a quarter may
// compute integers; registers: without a check of loops. opencl: on this machine's device of
// OpenCL, and as SPIR-V, which spirv-val checks; cuda:NAME, hip:NAME: on its GPU, as code for that
// architecture. hip: as code objects, without spills; loops that multiply matrices copy no sums,
// wait for no loads before, and of their instructions a sixth multiply, or more; hip_registers: or
// fewer. mfma: AMD's kernels on emulated threads, with its matrix instructions. sm_90a: for that
// GPU with few multiprocessors, so that small products have the tiles of large ones; warpgroups
// multiply in each graph, each product without waiting for the one before, and products of a loop
// take longer than its instructions.
#include "emitted.h"
#include "files.h"
#include "onnx.h"
#include "threads.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Returns a program of the CUDA toolkit, or NULL.
static const char *find_tool(Arena *arena, const char *name)
{
	const char *folders =
	    format(arena, "%s:/usr/local/cuda/bin:%s", AMOSC_NVDISASM, getenv("PATH"));
	for (const char *at = folders; *at; at += *at == ':') {
		int length = (int)strcspn(at, ":");
		const char *path = format(arena, "%.*s/%s", length, at, name);
		if (!access(path, X_OK))
			return path;
		at += length;
	}
	return NULL;
}

static const char *folder; // directory for assembled files
static bool groups;        // the GPU is sm_90a

static const char *gpu_name(void)
{
	return groups ? "sm_90a" : "sm_90";
}

// Returns a plan for the target, or for one of few multiprocessors.
static Plan *plan_for(Arena *arena, const Graph *g, const Target *target)
{
	const Machine *machine = target_machine(target);
	if (groups) {
		Machine *few = NEW(arena, Machine);
		*few = *machine;
		few->workers = 4;
		machine = few;
	}
	return plan_graph(arena, g, "run", machine);
}

static const Object *device_code(Arena *arena, const Graph *g, const char *target_name,
                                 const char *what)
{
	const Target *target = target_named(arena, target_name, NULL);
	Plan *plan = plan_for(arena, g, target);
	EmitOptions options = {.threads = 1, .name = what, .lld = AMOSC_LLD, .device_code = true};
	return emit(arena, 1, 1, &(Variant){target, NULL, &plan}, &options);
}

// True if the program takes the code of the graph's kernels in a file.
static bool takes(Arena *arena, const Graph *g, const char *target_name, const char *program,
                  const char *what)
{
	const Object *object = device_code(arena, g, target_name, what);
	const char *path = format(arena, "%s/kernels", folder);
	write_file(path, object->part[0].bytes, object->part[0].count);
	if (object->parts == 1 && !system(format(arena, "%s %s", program, path)))
		return true;
	printf("%s: %s does not take it\n", what, program);
	return false;
}

// Returns the registers that a thread of a kernel may have, whose name is first in quotes, for as
// many blocks of a multiprocessor as the PTX says.
static long registers_of(const char *ptx, const char *kernel)
{
	enum { ALL = 65536 / 256, MOST = 255 };
	static const char blocks[] = ".minnctapersm ";
	const char *name = strchr(kernel, '\'') + 1;
	char entry[64];
	snprintf(entry, sizeof entry, ".entry %.*s(", (int)strcspn(name, "'"), name);
	long n = atol(strstr(strstr(ptx, entry), blocks) + strlen(blocks));
	return MIN(MOST, ALL / n);
}

// True if all that ptxas says of kernels is below the limits.
static bool within_limits(Arena *arena, const char *path, const char *what)
{
	struct {
		const char *unit;
		long most;
	} limits[] = {{" bytes spill stores", 0}, {" registers", 0}, {" bytes smem", 48 << 10}};
	bool good = true;
	char *text = read_file(arena, path, NULL), *kernel = "";
	const char *ptx = read_file(arena, format(arena, "%s/kernels", folder), NULL);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (strstr(line, "Compiling entry")) {
			kernel = line;
			limits[1].most = registers_of(ptx, kernel);
		}
		if (strstr(line, "wgmma")) { // each waits for the one before
			printf("%s: %s\n", what, line);
			good = false;
		}
		for (int i = 0; i < COUNT(limits); i++) {
			char *at = strstr(line, limits[i].unit);
			while (at && at > line && at[-1] >= '0' && at[-1] <= '9')
				at--;
			if (!at || atol(at) <= limits[i].most)
				continue;
			printf("%s: %s: %ld%s\n", what, kernel, atol(at), limits[i].unit);
			good = false;
		}
	}
	return good;
}

// ---- the assembled code ---------------------------------------------------------------

typedef struct Code {      // a line of it
	const char *name;  // of an instruction, else NULL
	const char *label; // that stands here, or that a jump goes to
} Code;

static Code read_code(Arena *arena, const char *line)
{
	const char *at = line + strspn(line, "\t "), *end = strstr(at, "*/");
	if (starts_with(at, ".L_"))
		return (Code){.label = format(arena, "%.*s", (int)strcspn(at, ":"), at)};
	if (!starts_with(at, "/*") || !end)
		return (Code){NULL, NULL};
	at = end + 2;
	at += strspn(at, "\t {");
	if (*at == '@') // a predicate
		at += strcspn(at, " "), at += strspn(at, " ");
	const char *label = starts_with(at, "BRA") ? strstr(at, "`(") : NULL;
	return (Code){format(arena, "%.*s", (int)strcspn(at, " ;\n"), at),
	              label ? format(arena, "%.*s", (int)strcspn(label + 2, ")"), label + 2)
	                    : NULL};
}

static bool computes_integers(const char *name)
{
	static const char *const other[] = {
	    "HMMA", "LD",  "ST",   "ATOM",  "RED",  "BAR", "DEPBAR", "BRA",    "F",      "MUFU",
	    "WARP", "NOP", "BSSY", "BSYNC", "CALL", "I2F", "EXIT",   "ERRBAR", "MEMBAR", "HADD"};
	for (int k = 0; k < COUNT(other); k++)
		if (starts_with(name, other[k]))
			return starts_with(name, "FLO");
	return true;
}

// Returns where the innermost loop begins that a jump to `label` after all code closes; -1: it
// closes none. *last: where the last loop began.
static int innermost_loop(const Code *code, int count, const char *label, int *last)
{
	int from = count - 1;
	while (from >= 0 && (code[from].name || strcmp(code[from].label, label)))
		from--;
	bool innermost = from > *last;
	*last = MAX(*last, from);
	return innermost ? from : -1;
}

typedef Code ReadCode(Arena *, const char *line);
typedef bool CheckLoop(const Code *, int n, const char *kernel, const char *what);

// Checks all innermost loops of disassembled kernels.
static bool check_text(Arena *arena, char *text, ReadCode *read, CheckLoop *check, const char *what)
{
	VEC(Code) code = {0};
	bool good = true;
	const char *kernel = "";
	int last = -1; // where the last loop begins
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		Code c = read(arena, line);
		if (starts_with(line, ".text.") || starts_with(line, "<amos_")) {
			kernel = line;
			code.count = 0; // labels may begin again
			last = -1;
		}
		if (c.name || c.label)
			PUSH(arena, code, c);
		int from = -1;
		if (c.name && c.label)
			from = innermost_loop(code.at, code.count, c.label, &last);
		if (from >= 0)
			good &= check(code.at + from, code.count - from, kernel, what);
	}
	return good;
}

// Returns the cycles that an instruction of a warpgroup, of 64 rows and N columns, takes: a
// scheduler starts as many others meanwhile.
static int group_cycles(const char *name)
{
	static const char product[] = "HGMMA.64x";
	return starts_with(name, product) ? atoi(name + strlen(product)) / 2 : 0;
}

// True if at most a quarter of the instructions of a loop that multiplies halves, and copies its
// operands or computes probabilities, compute integers or, if warpgroups multiply, there are fewer
// than cycles of products; with probabilities, half as many again. The text is nvdisasm's.
static bool is_lean(const Code *code, int n, const char *kernel, const char *what)
{
	int all = 0, integers = 0, products = 0, copies = 0, loads = 0, cycles = 0, powers = 0;
	for (int i = 0; i < n; i++) {
		const char *name = code[i].name ? code[i].name : "NOP";
		all += code[i].name != NULL;
		integers += computes_integers(name);
		products += starts_with(name, "HMMA.16816."); // of f16 or bf16
		cycles += group_cycles(name);
		powers += starts_with(name, "MUFU.EX2");
		copies += starts_with(name, "LDGSTS");
		loads += starts_with(name, "LDG.");
	}
	bool lean = products ? integers * 4 <= all : powers ? 2 * all < 3 * cycles : all < cycles;
	if (!(products || cycles) || !(powers || (copies && !loads)) || lean)
		return true;
	printf("%s: %s %d of %d instructions compute integers, in %d cycles\n", what, kernel,
	       integers, all, cycles);
	return false;
}

static bool check_loops(Arena *arena, const char *nvdisasm, const char *cubin, const char *what)
{
	const char *text = format(arena, "%s/code", folder);
	if (system(format(arena, "%s -c %s >%s", nvdisasm, cubin, text)))
		return false;
	return check_text(arena, read_file(arena, text, NULL), read_code, is_lean, what);
}

// loops: also their instructions, of products of many tiles.
static bool check_ptx(Arena *arena, const Graph *g, bool loops, const char *what)
{
	const char *ptxas = find_tool(arena, "ptxas"), *nvdisasm = find_tool(arena, "nvdisasm"),
	           *said = format(arena, "%s/said", folder),
	           *cubin = format(arena, "%s/cubin", folder);
	const char *target = format(arena, "cuda:%s", gpu_name());
	if (groups && !takes(arena, g, target, "grep -q wgmma.mma_async", what))
		return false;
	if (!ptxas)
		return takes(arena, g, target, "grep -q '.visible .entry'", what);
	const char *program =
	    format(arena, "%s -v -arch=%s -o %s >%s 2>&1", ptxas, gpu_name(), cubin, said);
	return takes(arena, g, target, program, what) && within_limits(arena, said, what) &&
	       (!loops || !nvdisasm || check_loops(arena, nvdisasm, cubin, what));
}

// Reads a line of llvm-objdump, whose labels and jumps are <L0>: and L0.
static Code read_amd_code(Arena *arena, const char *line)
{
	if (*line == '<')
		return (Code){NULL, format(arena, "%.*s", (int)strcspn(line + 1, ">"), line + 1)};
	const char *at = line + strspn(line, "\t ");
	if (*line != '\t')
		return (Code){NULL, NULL};
	bool waits = starts_with(at, "s_waitcnt"); // for what, is part of the name
	const char *name = format(arena, "%.*s", (int)strcspn(at, waits ? "/" : " "), at);
	at += strcspn(at, " ");
	at += strspn(at, " ");
	bool jumps = starts_with(name, "s_cbranch") || starts_with(name, "s_branch");
	return (Code){name, jumps ? format(arena, "%.*s", (int)strcspn(at, " "), at) : NULL};
}

static int matrix_loops;   // that multiply by AMD's matrix instructions
static bool many_products; // are expected of their instructions

// True if the loop, if it multiplies matrices, does not use memory of the thread and, if it loads
// as much as it can at once, does not copy sums, nor wait for what it loads before it multiplies,
// and, of a tile of some size, a sixth of its instructions multiply.
static bool is_fast(const Code *code, int n, const char *kernel, const char *what)
{
	enum { SEVERAL = 16, LEAST = 6 };
	int all = 0, products = 0, copies = 0, scratch = 0, narrow = 0, loads = 0, early = 0;
	for (int i = 0; i < n; i++) {
		const char *name = code[i].name ? code[i].name : "";
		all += code[i].name != NULL;
		products += starts_with(name, "v_mfma");
		loads += starts_with(name, "global_load");
		const char *most = strstr(name, "vmcnt("); // of the last loads that it leaves
		early += most && !products && atoi(most + strlen("vmcnt(")) < loads;
		copies += starts_with(name, "v_accvgpr");
		scratch += starts_with(name, "scratch") || starts_with(name, "buffer");
		narrow += starts_with(name, "global_load") && !strstr(name, "dwordx4");
	}
	matrix_loops += products > 0;
	bool few = many_products && products >= SEVERAL && products * LEAST < all;
	bool slow = copies || early || few;
	if (!products || (!scratch && (narrow || !slow)))
		return true;
	printf("%s: %s of %d instructions, %d multiply, %d copy, %d spill, %d wait too early\n",
	       what, kernel, all, products, copies, scratch, early);
	return false;
}

static bool check_amd_loops(Arena *arena, const Object *object, const char *what)
{
	const char *path = format(arena, "%s/kernels", folder),
	           *text = format(arena, "%s/code", folder);
	write_file(path, object->part[0].bytes, object->part[0].count);
	const char *program =
	    AMOSC_OBJDUMP " -d --symbolize-operands --no-show-raw-insn --no-leading-addr";
	return !system(format(arena, "%s %s >%s", program, path, text)) &&
	       check_text(arena, read_file(arena, text, NULL), read_amd_code, is_fast, what);
}

// True if the kernels link for AMD's GPUs, and keep their values in registers: the metadata of the
// code object, in MessagePack, has a number after each key.
static bool check_hip(Arena *arena, const Graph *g, const char *what)
{
	static const char *const gpus[] = {"hip:gfx90a", "hip:gfx942", "hip:gfx1100"};
	static const char key[] = ".vgpr_spill_count";
	bool good = true;
	for (int i = 0; i < COUNT(gpus); i++) {
		const Object *object = device_code(arena, g, gpus[i], what);
		const char *at = object->part[0].bytes, *end = at + object->part[0].count;
		int kernels = 0, spill = 0;
		while ((at = memmem(at, (size_t)(end - at), key, strlen(key)))) {
			at += strlen(key);
			kernels++;
			spill += *at != 0;
		}
		if (!kernels || spill || object->parts != 1)
			printf("%s: %s: %d of %d kernels spill\n", what, gpus[i], spill, kernels);
		good &=
		    kernels && !spill && object->parts == 1 && check_amd_loops(arena, object, what);
	}
	return good;
}

// ---- graphs ---------------------------------------------------------------------------

// Returns a training step of a classifier or language model: loss, gradients, Amos.
static Graph *train_graph(Arena *arena, const char *path, Precision precision)
{
	static const Bind bind[] = {{"batch", 1}, {"sequence", 32}, {"n", 64}, {"N", 2}};
	ReadOptions options = {.nbind = COUNT(bind), .bind = bind, .precision = precision};
	Graph *g = loss_pass(arena, read_model(arena, path, &options)->graph,
	                     "cross_entropy(logits, labels)");
	Ref loss = find_output(g, "loss");
	g->outs.count = 0;
	add_out(g, "loss", loss);
	g = graph_live(arena, g);
	bool *active = NEWS(arena, bool, g->slots.count);
	for (int k = 0; k < g->slots.count; k++)
		active[k] = g->slots.at[k].kind == S_param;
	Eta *eta = eta_pass(arena, g, &(EtaOptions){0}, NULL);
	Opt opt = opt_named("amos");
	opt.labels = (Labels){64, 0.125};
	opt_defaults(arena, &opt);
	return step_pass(arena, grad_pass(arena, g, active, NULL), eta, &opt, STEP_train);
}

// Returns random inputs, and all else as at the start of a training.
static Array *first_slots(Arena *arena, const Graph *g)
{
	Array *slot = random_slots(arena, g, 1, 3);
	for (int k = 0; k < g->slots.count; k++) {
		const Slot *s = &g->slots.at[k];
		if (s->kind != S_input)
			slot[k] = slot_start(arena, s);
	}
	return slot;
}

static bool is_large(const Graph *g)
{
	double products = 0;
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_dot)
			products += (double)count_of(&val(g, r)->shape) *
			            (double)last_dim(&val(g, val(g, r)->in[0])->shape);
	return g->nval >= 1000 || products > 3e7;
}

// `tolerance` is relative to each array's largest element: f32 against the evaluator's double.
static double check_emulated(Arena *arena, const Graph *g, const Array *slot, double tolerance,
                             const char *target_name, const char *what)
{
	const Target *target = target_named(arena, target_name, NULL);
	double worst = 0;
	int orders = is_large(g) ? 1 : 2;
	Compiled *code = compile_plan(arena, g, plan_for(arena, g, target), target, what);
	for (int order = 1; order <= orders; order++) {
		gpu_seed = (uint64_t)order;
		Launcher *launch = order == 1 ? gpu_launch_without : gpu_launch;
		worst =
		    fmax(worst, check_compiled(arena, code, slot, launch, tolerance, NULL, what));
	}
	free_compiled(code);
	gpu_forget();
	return worst;
}

// Returns the program that checks SPIR-V: f16 is an extension of OpenCL, whose environment lacks
// it.
static const char *validator(const Graph *g)
{
	bool halves = false;
	for (Ref r = 1; r < (Ref)g->nval; r++)
		halves |= val(g, r)->type == E_f16;
	return halves ? "spirv-val" : "spirv-val --target-env opencl2.1";
}

static double check_device(Arena *arena, const Graph *g, const Array *slot, double tolerance,
                           const char *target_name, const char *what)
{
	const Target *target = target_named(arena, target_name, NULL);
	return check_graph(arena, g, slot, target, device_launch, tolerance, NULL, what);
}

#define ROUNDED 5e-3

int main(int argc, char **argv)
{
	int failures = 0;
	groups = argc > 1 && !strcmp(argv[1], "sm_90a");
	argc -= groups, argv += groups;
	const char *how = argc > 1 ? argv[1] : "";
	bool opencl = !strcmp(how, "opencl"), gpu = strchr(how, ':'), mfma = !strcmp(how, "mfma"),
	     hip = !gpu && starts_with(how, "hip"), rounded = !strcmp(how, "rounded"),
	     loops = !strcmp(how, "ptx"), runs = !hip && !loops && strcmp(how, "registers");
	const char *emulated = mfma ? "hip:host" : groups ? "cuda:host-sm_90a" : "cuda:host";
	many_products = !strcmp(how, "hip");
	folder = own_folder();
	for (int i = 2; i < argc; i++) {
		Arena *arena = arena_new();
		bool model = ends_with(argv[i], ".onnx");
		Precision precision = rounded ? PRECISION_TF32 : PRECISION_F32;
		Graph *g =
		    model ? train_graph(arena, argv[i], precision) : read_graph(arena, argv[i]);
		double worst = 0;
		if (runs) {
			Array *slot = model ? first_slots(arena, g)
			                    : random_slots(arena, g, (uint64_t)i - 1, 5);
			// Rounding accumulates through the layers of a model: the tolerance is that
			// of the goldens, or of operands with 11 digits, or 8 if few errors meet.
			bool low = rounded || strstr(argv[i], "/rounded/");
			double tolerance = low ? ROUNDED : model ? 1e-4 : 1e-5;
			worst = opencl || gpu
			            ? check_device(arena, g, slot, tolerance, how, argv[i])
			            : check_emulated(arena, g, slot, tolerance, emulated, argv[i]);
		}
		bool good =
		    worst <= 1 && (hip           ? check_hip(arena, g, argv[i])
		                   : mfma || gpu ? true
		                   : opencl      ? takes(arena, g, "opencl", validator(g), argv[i])
		                                 : check_ptx(arena, g, loops, argv[i]));
		printf("%s %s %.3f\n", good ? "ok " : "BAD", argv[i], worst);
		failures += !good;
		arena_free(arena);
	}
	printf("%d graphs %s, %d fail\n", argc - 2,
	       opencl ? "on a device of OpenCL and as SPIR-V"
	       : gpu  ? "on a GPU"
	       : hip  ? "as code objects"
	       : mfma ? "on emulated threads"
	       : runs ? "on emulated threads and as PTX"
	              : "as PTX",
	       failures);
	Arena *arena = arena_new();
	if (!opencl && !gpu && !hip && !mfma && !find_tool(arena, "ptxas"))
		printf("no ptxas here: the PTX is not assembled\n");
	if (loops && !find_tool(arena, "nvdisasm"))
		printf("no nvdisasm here: loops are not checked\n");
	arena_free(arena);
	if (gpu_barriers)
		printf("%d barriers and waits, %d of which a race shows to be needed\n",
		       gpu_barriers, gpu_needed);
	if (hip)
		printf("%d loops multiply by matrix instructions\n", matrix_loops);
	return failures || argc < 3 || gpu_needed < gpu_barriers || (hip && !matrix_loops);
}
