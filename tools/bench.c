// bench.c: profiles a training step by kernel, on synthetic data or one batch.
// Output: each kernel's share of the time, and the fraction of this machine's peak that it reaches.
// The time of a launch is its median over the steps. The peaks are measured before and after them,
// and with them what else used the processors meanwhile.
#include "tool.h"
#include "peak.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WARM = 2, LEAST = 5, MOST = 1000 }; // steps

typedef struct Line { // kernels of one key
	const char *key, *name, *kind, *shape, *role;
	int launches;
	double seconds, flops, bytes; // per step
} Line;
typedef VEC(Line) Lines;

typedef struct Steps { // seconds
	int count;
	double median, least, most;
} Steps;

typedef struct Usage { // of the processors, in seconds
	double time, busy, stolen, own;
} Usage;

typedef struct Bench {
	Session *session;
	double seconds; // to time steps for
	struct amos *open;
	const struct amos_entry *entry;
	Peak before, after, peak; // of the CPU; peak: the better of both. NAN: a device computes
	double foreign, stolen;   // processors that others used meanwhile
	Steps steps;
	double loss;                    // of the first step
	double flops;                   // per step
	Lines kernels, products, kinds; // longest first
	Line update;                    // all kernels that write parameters
	Peers peers;
} Bench;

// ---- the machine ----------------------------------------------------------------------

static double processor_time(const struct rusage *used)
{
	return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
	       1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

static Usage usage_now(void)
{
	Usage now = {.time = amos_now()};
	double t[8] = {0}, tick = (double)sysconf(_SC_CLK_TCK);
	struct rusage own, peers;
	FILE *file = fopen("/proc/stat", "re");
	int read = !file ? 0
	                 : fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2],
	                          &t[3], &t[4], &t[5], &t[6], &t[7]);
	if (file)
		fclose(file);
	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &peers);
	now.own = processor_time(&own) + processor_time(&peers);
	now.stolen = t[7] / tick;
	// all but idle, waiting and stolen; where the system does not say, this process alone
	now.busy = read == 8 ? (t[0] + t[1] + t[2] + t[5] + t[6]) / tick : now.own;
	return now;
}

static double processors_used(double used, const Usage *from, const Usage *to)
{
	return fmax(0, used / fmax(to->time - from->time, 1e-9));
}

// Returns what disturbed the measurement, or NULL.
static const char *disturbance(const Bench *b)
{
	Arena *arena = b->session->arena;
	double flops = b->after.flops / b->before.flops, bytes = b->after.bytes / b->before.bytes;
	if (b->foreign > 0.1)
		return format(arena, "other processes used %.1f processors", b->foreign);
	if (b->stolen > 0.1)
		return format(arena, "the host took %.1f processors", b->stolen);
	if (fabs(log(flops)) > 0.1)
		return format(arena, "the peak of multiply-adds changed by %+.0f%%",
		              100 * (flops - 1));
	if (fabs(log(bytes)) > 0.2)
		return format(arena, "the bandwidth changed by %+.0f%%", 100 * (bytes - 1));
	return NULL;
}

// ---- steps ----------------------------------------------------------------------------

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *at, int n)
{
	qsort(at, (size_t)n, sizeof *at, by_number);
	return (at[(n - 1) / 2] + at[n / 2]) / 2;
}

// Returns the loss of the call before; NAN: the model has none of that name.
static double last_loss(const Bench *b)
{
	int64_t out = amos_find_output(b->entry, "loss");
	return out < 0 ? NAN : amos_out_number(b->open, b->entry, out);
}

// Returns the median nanoseconds of each launch of the entry.
static double *time_steps(Bench *b)
{
	Arena *arena = b->session->arena;
	int64_t n = b->entry->nkernels;
	int64_t *own = NEWS(arena, int64_t, n + 1);
	VEC(double) took = {0}, launches = {0};
	for (int i = 0; i < WARM; i++) {
		call_synthetic(b->open, b->entry);
		b->loss = i ? b->loss : last_loss(b);
	}
	b->open->nanoseconds = own;
	double start = amos_now();
	while (took.count < LEAST || (took.count < MOST && amos_now() - start < b->seconds)) {
		memset(own, 0, (size_t)n * sizeof *own);
		double begin = amos_now();
		call_synthetic(b->open, b->entry);
		PUSH(arena, took, amos_now() - begin);
		for (int64_t k = 0; k < n; k++)
			PUSH(arena, launches, (double)own[k]);
	}
	b->open->nanoseconds = NULL;
	double *result = NEWS(arena, double, n + 1), *column = NEWS(arena, double, took.count);
	for (int64_t k = 0; k < n; k++) {
		for (int i = 0; i < took.count; i++)
			column[i] = launches.at[i * n + k];
		result[k] = median(column, took.count);
	}
	double middle = median(took.at, took.count); // sorts them
	b->steps = (Steps){took.count, middle, took.at[0], took.at[took.count - 1]};
	return result;
}

// ---- the trace ------------------------------------------------------------------------

// Writes one step for chrome://tracing and Perfetto.
static void write_trace(Bench *b, const char *path)
{
	Arena *arena = b->session->arena;
	struct amos_spans spans = {0};
	int64_t launches = 0;
	for (int64_t k = 0; k < b->entry->nkernels; k++)
		launches += b->entry->kernels[k].times;
	spans.room = launches * b->open->threads;
	spans.at = NEWS(arena, struct amos_span, spans.room + 1);
	b->open->spans = &spans;
	int64_t start = (int64_t)(1e9 * amos_now());
	call_synthetic(b->open, b->entry);
	b->open->spans = NULL;
	json_t *events = json_array();
	for (int64_t i = 0; i < spans.count; i++) {
		const struct amos_span *s = &spans.at[i];
		const struct amos_kernel *k = s->kernel;
		json_array_append_new(
		    events,
		    json_pack("{so ss ss si sI sf sf s{ss ss sI}}", "name", json_text(k->name),
		              "cat", k->kind, "ph", "X", "pid", 1, "tid", (json_int_t)s->thread,
		              "ts", 1e-3 * (double)(s->begin - start), "dur",
		              1e-3 * (double)(s->end - s->begin), "args", "shape", k->shape, "role",
		              k->role, "workers", (json_int_t)k->workers));
	}
	json_t *trace = json_pack("{so ss}", "traceEvents", events, "displayTimeUnit", "ms");
	char *text = json_dumps(trace, JSON_COMPACT | JSON_REAL_PRECISION(9));
	json_decref(trace);
	at_end(arena, free, text);
	struct amos_temp_file file;
	int status = amos_file_open(&file, path);
	need_done(status);
	fputs(text, file.to);
	need_done(amos_file_keep(&file));
}

// ---- lines ----------------------------------------------------------------------------

static int by_time(const void *a, const void *b)
{
	double x = ((const Line *)a)->seconds, y = ((const Line *)b)->seconds;
	return (x < y) - (x > y);
}

// Adds a launch to the line of that key.
static void add_launch(Arena *arena, Lines *lines, const Line *launch)
{
	int known = amos_index(launch->key, lines->at, lines->count, sizeof *lines->at);
	if (known < 0) {
		PUSH(arena, *lines, *launch);
		return;
	}
	Line *l = &lines->at[known];
	l->launches += launch->launches;
	l->seconds += launch->seconds;
	l->flops += launch->flops;
	l->bytes += launch->bytes;
}

static Line key_line(Arena *arena, const Line *l, const char *shape, const char *name)
{
	Line line = *l;
	line.shape = shape;
	line.name = name;
	line.key = format(arena, "%s\t%s\t%s\t%s", l->kind, l->role, shape, name);
	return line;
}

// Adds up the launches by kernel, products by shape and role, and all by kind and role.
static void gather_lines(Bench *b, const double *nanoseconds)
{
	Arena *arena = b->session->arena;
	Lines updates = {0};
	for (int64_t i = 0; i < b->entry->nkernels; i++) {
		const struct amos_kernel *k = &b->entry->kernels[i];
		if (k->loop)
			continue;
		Line line = {.name = k->name,
		             .kind = k->kind,
		             .shape = k->shape,
		             .role = k->role,
		             .launches = (int)k->times,
		             .seconds = 1e-9 * nanoseconds[i],
		             .flops = (double)k->flops * (double)k->times,
		             .bytes = (double)k->bytes * (double)k->times};
		Line own = key_line(arena, &line, k->shape, k->name),
		     shape = key_line(arena, &line, k->shape, ""),
		     kind = key_line(arena, &line, "", "");
		add_launch(arena, &b->kernels, &own);
		add_launch(arena, &b->kinds, &kind);
		if (!strcmp(k->kind, "dot") || !strcmp(k->kind, "attend"))
			add_launch(arena, &b->products, &shape);
		line.key = line.kind = "update";
		if (!strcmp(k->role, "update"))
			add_launch(arena, &updates, &line);
		b->flops += line.flops;
	}
	Lines *all[] = {&b->kernels, &b->products, &b->kinds};
	for (int i = 0; i < COUNT(all); i++)
		if (all[i]->count)
			qsort(all[i]->at, (size_t)all[i]->count, sizeof(Line), by_time);
	b->update = updates.count ? updates.at[0] : (Line){0};
}

// Returns the larger of two fractions of what this machine can do in that time: of its operations,
// of its memory traffic.
static double fraction(const Bench *b, const Line *l)
{
	double seconds = fmax(l->seconds, 1e-9);
	return fmax(l->flops / b->peak.flops, l->bytes / b->peak.bytes) / seconds;
}

// ---- reports --------------------------------------------------------------------------

// Returns "12%"; "-" if the fraction is unknown.
static const char *percent(const Bench *b, double fraction)
{
	return isnan(fraction) ? "-" : format(b->session->arena, "%.0f%%", 100 * fraction);
}

// Returns ", 12% of WHAT"; nothing if the fraction is unknown.
static const char *part_of(const Bench *b, double fraction, const char *what)
{
	return isnan(fraction)
	           ? ""
	           : format(b->session->arena, ", %s of %s", percent(b, fraction), what);
}

static void print_lines(const Bench *b, const Lines *lines, const char *title)
{
	if (!lines->count)
		return;
	printf("%9s %6s %5s %9s %8s %5s %-7s %-7s %s\n", "ms", "share", "times", "GFLOP/s", "GB/s",
	       "peak", "kind", "role", title);
	for (int i = 0; i < lines->count; i++) {
		const Line *l = &lines->at[i];
		double s = fmax(l->seconds, 1e-9);
		printf("%9.3f %5.1f%% %5d %9.1f %8.1f %5s %-7s %-*s%s%s%s%s\n", 1e3 * s,
		       100 * s / b->steps.median, l->launches, 1e-9 * l->flops / s,
		       1e-9 * l->bytes / s, percent(b, fraction(b, l)), l->kind, *l->shape ? 7 : 0,
		       l->role, *l->shape ? " " : "", l->shape, *l->name ? " " : "", l->name);
	}
}

static json_t *line_json(const Bench *b, const Line *l)
{
	return json_pack("{so ss ss ss si sf sf sf so}", "name", json_text(l->name), "kind",
	                 l->kind, "shape", l->shape, "role", l->role, "launches", l->launches,
	                 "seconds", l->seconds, "flops", l->flops, "bytes", l->bytes, "fraction",
	                 number_json(fraction(b, l)));
}

static json_t *lines_json(const Bench *b, const Lines *lines)
{
	json_t *list = json_array();
	for (int i = 0; i < lines->count; i++)
		json_array_append_new(list, line_json(b, &lines->at[i]));
	return list;
}

static json_t *peak_json(const Peak *p)
{
	return json_pack("{so so}", "flops", number_json(p->flops), "bytes", number_json(p->bytes));
}

// Returns how many times amosc's step the peer's takes; NAN if it computes another loss.
static double peer_ratio(const Bench *b, const Peer *peer)
{
	const char *precision = choice(b->session, OPT_precision, "f32");
	double allowed = strcmp(precision, "f32") ? 0.02 : 0.002;
	return fabs(peer->loss - b->loss) <= allowed * fabs(b->loss) ? peer->step / b->steps.median
	                                                             : NAN;
}

static json_t *peers_json(const Bench *b)
{
	json_t *list = json_array();
	for (int i = 0; i < b->peers.count; i++) {
		const Peer *p = &b->peers.at[i];
		json_array_append_new(
		    list, json_pack("{ss so sf so si so so so so}", "name", p->name, "version",
		                    json_text(p->version), "step", p->step, "least",
		                    number_json(p->least), "steps", p->steps, "first",
		                    number_json(p->first), "loss", number_json(p->loss), "bytes",
		                    number_json(p->bytes), "ratio", number_json(peer_ratio(b, p))));
	}
	return list;
}

static json_t *bench_json(const Bench *b)
{
	const Steps *s = &b->steps;
	json_t *machine = json_pack("{so so so sf sf ss?}", "peak", peak_json(&b->peak), "before",
	                            peak_json(&b->before), "after", peak_json(&b->after), "foreign",
	                            b->foreign, "stolen", b->stolen, "disturbed", disturbance(b));
	return json_pack("{so sf sf sf si so sf so sI so so so so so so}", "model",
	                 json_text(b->session->path), "step", s->median, "least", s->least, "most",
	                 s->most, "steps", s->count, "loss", number_json(b->loss), "flops",
	                 b->flops, "fraction", number_json(b->flops / s->median / b->peak.flops),
	                 "bytes", (json_int_t)b->open->memory.total, "machine", machine, "updates",
	                 b->update.key ? line_json(b, &b->update) : json_null(), "peers",
	                 peers_json(b), "kinds", lines_json(b, &b->kinds), "products",
	                 lines_json(b, &b->products), "kernels", lines_json(b, &b->kernels));
}

static void print_peer(const Bench *b, const Peer *p)
{
	double ratio = peer_ratio(b, p);
	printf("%s: %.3f ms a step", p->name, 1e3 * p->step);
	if (isnan(ratio))
		printf("; its first loss is %.6g, that of amosc %.6g: it computes something else",
		       p->loss, b->loss);
	else
		printf(", %.2f times that of amosc", ratio);
	printf("; first step after %.2f s; memory %s; %s\n", p->first,
	       bytes_text(b->session->arena, p->bytes), p->version);
}

static void print_bench(const Bench *b)
{
	const Steps *s = &b->steps;
	const Line *u = &b->update;
	print_lines(b, &b->kernels, "kernel");
	print_lines(b, &b->products, "products of a shape");
	print_lines(b, &b->kinds, "all of a kind");
	if (!isnan(b->peak.flops))
		printf("machine: %.1f GFLOP/s of multiply-adds, %.1f GB/s of memory in place "
		       "(afterwards %.1f, %.1f)\n",
		       1e-9 * b->before.flops, 1e-9 * b->before.bytes, 1e-9 * b->after.flops,
		       1e-9 * b->after.bytes);
	if (u->key)
		printf("updates: %.3f ms%s\n", 1e3 * u->seconds,
		       part_of(b, u->bytes / u->seconds / b->peak.bytes, "memory in place"));
	printf("a step: %.3f ms, %.1f GFLOP/s%s; %d %s of %.3f to %.3f ms\n", 1e3 * s->median,
	       1e-9 * b->flops / s->median,
	       part_of(b, b->flops / s->median / b->peak.flops, "peak"), s->count,
	       PLURAL(s->count, "step", "steps"), 1e3 * s->least, 1e3 * s->most);
	printf("memory %s\n", bytes_text(b->session->arena, (double)b->open->memory.total));
	for (int i = 0; i < b->peers.count; i++)
		print_peer(b, &b->peers.at[i]);
	if (disturbance(b))
		printf("disturbed: %s; measure again\n", disturbance(b));
}

void verb_bench(Session *session)
{
	if (chosen(session, OPT_model)) {
		model_step(session);
		return;
	}
	const char *trace = choice(session, OPT_trace, NULL);
	double seconds = choice_number(session, OPT_seconds, 3);
	need_file(session, OPT_trace, "a file");
	check_peers(session);
	Program *program = program_new(session, open_given(session));
	program->runs = true;
	if (program->data)
		attach_data(program);
	if (trace) // once the files are known that it must not replace
		need_done(amos_output_check(trace));
	Bench b = {.session = session, .seconds = seconds, .open = open_program(program)};
	int64_t threads = choice_count(session, OPT_threads, 0);
	int lanes = target_machine(target_of(session))->lanes;
	if (program->data)
		need_done(amos_data_train(program->data, b.open, 0));
	else
		fill_inputs(program, b.open);
	b.entry = amos_find_entry(b.open->model, "train");
	Usage start = usage_now();
	b.peers = run_peers(session, program_graph(program), b.open); // first, since they may fail
	bool device = b.open->model->device;
	b.before = b.after = (Peak){NAN, NAN};
	if (!device)
		need_done(measure_peak(threads, lanes, b.seconds, &b.before));
	const double *nanoseconds = time_steps(&b);
	if (!device)
		need_done(measure_peak(threads, lanes, b.seconds, &b.after));
	Usage end = usage_now();
	b.peak = (Peak){fmax(b.before.flops, b.after.flops), fmax(b.before.bytes, b.after.bytes)};
	b.stolen = processors_used(end.stolen - start.stolen, &start, &end);
	b.foreign = processors_used(end.busy - start.busy - (end.own - start.own), &start, &end);
	gather_lines(&b, nanoseconds);
	if (trace)
		write_trace(&b, trace);
	if (chosen(session, OPT_json))
		print_json(bench_json(&b));
	else
		print_bench(&b);
}
