// power.c: checks that a power failure at any moment leaves complete files from which a run
// resumes.
// power_record.c, preloaded, records what a command does to a directory. After each of its steps
// the disk may hold any of these states: of the changes to a directory since its last sync, all,
// none, any one, or all but one; of a file since its last sync, nothing, all, the first half of
// what is new, or that followed by zeros. In each state, every output is one that existed under its
// name, no older than the last synced one; and a run resumes to the same end.
// usage: test_power RECORD.so MOCK_TRAINER AMOSC MODEL
#include "fixtures.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NEVER = -1 };

typedef struct Entry {              // an entry of a directory
	const char *path, *content; // content: a name in log/; NULL: a directory
	uint64_t inode;
} Entry;

typedef VEC(Entry) View;

typedef struct Change { // an atomic change of a directory
	VEC(Entry) to;  // inode 0: the name is removed
} Change;

typedef struct Output { // a file that is always complete
	const char *path;
	VEC(const char *) stood; // contents it had, in order; "-": none
	int floor;               // index of the oldest contents allowed
} Output;

typedef struct Disk {
	View live, durable;
	VEC(Change) pending;
	VEC(Entry) synced; // content by inode, ignoring paths
	VEC(Output) outputs;
	Table *states; // states already checked
	int count;
	const char *resume; // shell command that finishes the run in state/, or NULL
	int resumed;
} Disk;

// ---- the record -----------------------------------------------------------------------

static Entry *find(const View *view, const char *path)
{
	for (int i = 0; i < view->count; i++)
		if (!strcmp(view->at[i].path, path))
			return &view->at[i];
	return NULL;
}

static bool same_entry(const Entry *a, const Entry *b)
{
	return a && b && a->inode == b->inode;
}

static const char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? format(arena, "%.*s", (int)(slash - path), path) : ".";
}

static void set_entry(View *view, Entry e)
{
	Entry *old = find(view, e.path);
	if (old && e.inode)
		*old = e;
	else if (old)
		*old = view->at[--view->count];
	else if (e.inode)
		PUSH(arena, *view, e);
}

// Adds the differences to the next view: as one change, or one per name.
static void add_changes(Disk *d, const View *next, bool atomic)
{
	Change all = {0};
	for (int i = 0; i < d->live.count; i++)
		if (!find(next, d->live.at[i].path)) {
			Entry gone = {.path = d->live.at[i].path};
			PUSH(arena, all.to, gone);
		}
	for (int i = 0; i < next->count; i++)
		if (!same_entry(&next->at[i], find(&d->live, next->at[i].path)))
			PUSH(arena, all.to, next->at[i]);
	for (int i = 0; i < all.to.count && !atomic; i++) {
		Change one = {0};
		PUSH(arena, one.to, all.to.at[i]);
		PUSH(arena, d->pending, one);
	}
	if (atomic && all.to.count)
		PUSH(arena, d->pending, all);
}

static const Entry *of_inode(const void *list, uint64_t inode)
{
	const View *view = list;
	for (int i = 0; i < view->count; i++)
		if (view->at[i].inode == inode)
			return &view->at[i];
	return NULL;
}

// An inode without a name is a different file if its number is reused.
static void forget_gone(Disk *d, const View *next)
{
	for (int i = d->synced.count; i-- > 0;)
		if (!of_inode(next, d->synced.at[i].inode))
			d->synced.at[i] = d->synced.at[--d->synced.count];
}

static void look(Disk *d, const View *next, bool atomic)
{
	add_changes(d, next, atomic);
	forget_gone(d, next);
	d->live = *next;
	for (int i = 0; i < d->outputs.count; i++) {
		Output *o = &d->outputs.at[i];
		const Entry *e = find(next, o->path);
		const char *content = e ? e->content : "-";
		if (!o->stood.count || strcmp(o->stood.at[o->stood.count - 1], content))
			PUSH(arena, o->stood, content);
	}
}

static int newest(const Output *o, const char *content)
{
	for (int i = o->stood.count; i-- > 0;)
		if (!strcmp(o->stood.at[i], content))
			return i;
	return NEVER;
}

// The outputs may no longer be older than what is durable.
static void raise_floors(Disk *d)
{
	for (int i = 0; i < d->outputs.count; i++) {
		Output *o = &d->outputs.at[i];
		const Entry *e = find(&d->durable, o->path), *synced = NULL;
		if (e)
			synced = of_inode(&d->synced, e->inode);
		int now = !e ? newest(o, "-") : synced ? newest(o, synced->content) : NEVER;
		o->floor = MAX(o->floor, now);
	}
}

static void sync_inode(Disk *d, uint64_t inode)
{
	const Entry *e = of_inode(&d->live, inode);
	if (!e)
		return;
	if (e->content) {
		Entry *old = (Entry *)of_inode(&d->synced, inode);
		if (old)
			*old = *e;
		else
			PUSH(arena, d->synced, *e);
	}
	int left = 0;
	for (int i = 0; i < d->pending.count && !e->content; i++) {
		Change *c = &d->pending.at[i];
		if (strcmp(folder_of(c->to.at[0].path), e->path)) {
			d->pending.at[left++] = *c;
			continue;
		}
		for (int k = 0; k < c->to.count; k++)
			set_entry(&d->durable, c->to.at[k]);
	}
	d->pending.count = e->content ? d->pending.count : left;
	raise_floors(d);
}

// ---- states of the disk ---------------------------------------------------------------

typedef enum Unsynced { U_none, U_all, U_half, U_zeros, UNSYNCED } Unsynced;

// Returns contents of the file between the synced and the current ones: a name in log/.
static const char *content_between(const Disk *d, const Entry *live, Unsynced how)
{
	const Entry *synced = of_inode(&d->synced, live->inode);
	size_t before = 0, now, common = 0;
	char *old =
	    synced ? read_file(arena, format(arena, "log/%s", synced->content), &before) : NULL;
	char *all = read_file(arena, format(arena, "log/%s", live->content), &now);
	if (how == U_all || (synced && !strcmp(synced->content, live->content)))
		return live->content;
	if (how == U_none && synced)
		return synced->content;
	while (common < before && common < now && old[common] == all[common])
		common++;
	size_t kept = how == U_none ? 0 : common + (now - common) / 2,
	       count = how == U_zeros ? now : kept;
	memset(all + kept, 0, now - kept);
	const char *name = format(arena, "%s-%d-%zu", live->content, how, kept);
	write_file(format(arena, "log/%s", name), all, count);
	return name;
}

static void check_output(const Output *o, const View *state)
{
	const Entry *e = find(state, o->path);
	const char *content = e ? e->content : "-";
	int at = newest(o, content);
	CHECK(at != NEVER, "%s: neither the old nor the new one, but %s", o->path, content);
	CHECK(at >= o->floor, "%s: %s comes back after it was replaced and synced", o->path,
	      e ? "an old one" : "none");
}

static void lay_out(const View *state)
{
	CHECK(!system("rm -rf state; mkdir state"), "state");
	for (int i = 0; i < state->count; i++)
		if (!state->at[i].content)
			mkdir(format(arena, "state/%s", state->at[i].path), 0777);
	for (int i = 0; i < state->count; i++) {
		size_t size;
		const Entry *e = &state->at[i];
		if (!e->content)
			continue;
		const char *bytes = read_file(arena, format(arena, "log/%s", e->content), &size);
		write_file(format(arena, "state/%s", e->path), bytes, size);
	}
}

// Resumes the run if it has a checkpoint of its own; before that, it must report that it has none.
static void check_resume(Disk *d, const View *state)
{
	struct amos_checkpoint *c;
	const Entry *last = find(state, "run/last.ckpt"),
	            *command = find(state, "run/command.json");
	lay_out(state);
	if (!last)
		return;
	CHECK(!amos_checkpoint_open("state/run", true, &c), "last.ckpt");
	bool ours = strstr(c->identity, "--seed\t2\n");
	amos_checkpoint_close(c);
	CHECK(ours || !command ||
	          !strstr(read_file(arena, "state/run/command.json", NULL), "--overwrite"),
	      "the new run's command beside the old run's weights");
	if (!ours)
		return;
	CHECK(!system(d->resume), "%s: %s", d->resume, read_file(arena, "said.txt", NULL));
	hold_same("whole/run/last.ckpt", "state/run/last.ckpt");
	hold_same("whole/run/best.ckpt", "state/run/best.ckpt");
	CHECK(!system("for r in whole state; do sed 's/, .samples_per_s.*//; s/, .seconds.*//' "
	              "$r/run/log.jsonl >$r.log; done; cmp whole.log state.log"),
	      "the logs differ");
	d->resumed++;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const Entry *)a)->path, ((const Entry *)b)->path);
}

// Checks the state with the current names and contents chosen by `how`.
static void look_at_state(Disk *d, View names, Unsynced how)
{
	View state = {0};
	Text key = {.arena = arena};
	qsort(names.at, (size_t)names.count, sizeof *names.at, by_path);
	for (int i = 0; i < names.count; i++) {
		Entry e = names.at[i];
		const Entry *live = of_inode(&d->live, e.inode);
		if (strcmp(folder_of(e.path), ".") && !find(&names, folder_of(e.path)))
			continue;
		if (e.content && live)
			e.content = content_between(d, live, how);
		PUSH(arena, state, e);
		say(&key, "%s %s\n", e.path, e.content ? e.content : "/");
	}
	for (int i = 0; i < d->outputs.count; i++)
		check_output(&d->outputs.at[i], &state);
	uint64_t *seen = table_cell_s(d->states, key.at ? key.at : "");
	if (*seen)
		return;
	*seen = 1;
	d->count++;
	if (d->resume)
		check_resume(d, &state);
}

// Checks states with none, all, each one, and all but each one of the pending changes.
static void look_at_states(Disk *d)
{
	int n = d->pending.count;
	for (int subset = 0; subset < 2 + 2 * n; subset++) {
		View names = {0};
		for (int i = 0; i < d->durable.count; i++)
			PUSH(arena, names, d->durable.at[i]);
		for (int i = 0; i < n; i++) {
			bool done = subset == 1 || subset == 2 + i ||
			            (subset >= 2 + n && subset != 2 + n + i);
			const Change *c = &d->pending.at[i];
			for (int k = 0; k < c->to.count && done; k++)
				set_entry(&names, c->to.at[k]);
		}
		for (Unsynced how = 0; how < UNSYNCED; how++)
			look_at_state(d, names, how);
	}
}

// ---- commands -------------------------------------------------------------------------

// Files from before the command are durable.
static void begin(Disk *d, const View *first)
{
	for (int i = 0; i < first->count; i++) {
		PUSH(arena, d->durable, first->at[i]);
		if (first->at[i].content)
			PUSH(arena, d->synced, first->at[i]);
	}
	d->live = *first;
	look(d, first, true);
	d->pending.count = 0;
	raise_floors(d);
}

static void replay(Disk *d, Lines lines)
{
	bool begun = false;
	for (int i = 0; i < lines.count;) {
		if (lines.at[i][0] == 'S') {
			sync_inode(d, strtoull(lines.at[i++] + 2, NULL, 10));
			look_at_states(d);
			continue;
		}
		bool after = lines.at[i++][0] == 'A';
		View next = {0};
		for (; i < lines.count && strchr("DF", lines.at[i][0]); i++) {
			char *at = lines.at[i] + 2;
			Entry e = {.inode = strtoull(at, &at, 10)};
			const char *content = ++at;
			if (lines.at[i][0] == 'F') {
				at += strcspn(at, " ");
				*at++ = 0;
				e.content = content;
			}
			e.path = at;
			PUSH(arena, next, e);
		}
		if (begun)
			look(d, &next, after);
		else
			begin(d, &next);
		begun = true;
		look_at_states(d);
	}
	CHECK(begun, "nothing was recorded");
}

// Runs the command in the directory, recorded; `outputs` is NULL-terminated.
static void power(const char *record, const char *folder, const char *command,
                  const char *const *outputs, const char *resume)
{
	char here[4096];
	CHECK(getcwd(here, sizeof here), "getcwd");
	const char *line = format(arena,
	                          "rm -rf log; mkdir log; cd %s && LD_PRELOAD=%s "
	                          "ASAN_OPTIONS=verify_asan_link_order=0 POWER_WATCH=%s/%s "
	                          "POWER_LOG=%s/log %s >../said.txt 2>&1",
	                          folder, record, here, folder, here, command);
	CHECK(!system(line), "%s: %s", command, read_file(arena, "said.txt", NULL));
	Disk d = {.states = table_new(arena), .resume = resume};
	for (int i = 0; outputs[i]; i++) {
		Output o = {.path = outputs[i], .floor = NEVER};
		PUSH(arena, d.outputs, o);
	}
	replay(&d, read_lines(arena, "log/log"));
	for (int i = 0; i < d.outputs.count; i++) {
		Output *o = &d.outputs.at[i];
		CHECK(o->stood.count > 1, "%s: not written", o->path);
		CHECK(o->floor == o->stood.count - 1, "%s: not on the disk when the command ends",
		      o->path);
	}
	printf("power: %-14s %4d states of the disk, %d resumed\n", folder, d.count, d.resumed);
}

static void shell(const char *command)
{
	CHECK(!system(command), "%s: %s", command, read_file(arena, "said.txt", NULL));
}

int main(int argc, char **argv)
{
	CHECK(argc == 5, "usage: test_power RECORD.so MOCK_TRAINER AMOSC MODEL");
	const char *record = argv[1], *mock = argv[2], *amosc = argv[3], *model = argv[4];
	enter_folder();
	write_line_data(100);
	const char *train = format(arena,
	                           "%s --data x=../x.npy --data y=../y.npy --split 0.8 -n 12 "
	                           "--save-every 3 --eval-every 5 -o run -q",
	                           mock);
	const char *resume = format(arena, "cd state && %s --resume run >../said.txt 2>&1", mock);
	static const char *const run[] = {"run/last.ckpt", "run/best.ckpt", "run/command.json",
	                                  NULL};
	shell(format(arena, "mkdir whole new over; cd whole; %s --seed 2", train));
	power(record, "new", format(arena, "%s --seed 2", train), run, resume);
	shell(format(arena, "cd over; %s --seed 1", train));
	power(record, "over", format(arena, "%s --seed 2 --overwrite", train), run, resume);

	const char *loss = "\"--loss\" \"cross_entropy(logits, labels)\"";
	shell(format(arena, "mkdir model; echo old >model/run.onnx; echo old >model/t; echo old "
	                    ">model/o.npz; printf 'x\\n' >model/e.onnx; mkdir weights"));
	float x[400];
	int64_t labels[100];
	for (int i = 0; i < 400; i++)
		x[i] = (float)(i % 7);
	for (int i = 0; i < 100; i++)
		labels[i] = i % 3;
	write_npy("x.npy", "<f4", false, "100, 4", x, sizeof x);
	write_npy("labels.npy", "<i8", false, "100,", labels, sizeof labels);
	power(record, "model",
	      format(arena,
	             "%s train %s %s --data x=../x.npy --data labels=../labels.npy --split 0.8 "
	             "--batch 4 -n 3 -o run --overwrite -q",
	             amosc, model, loss),
	      (const char *[]){"run.onnx", "run/last.ckpt", "run/best.ckpt", NULL}, NULL);
	power(record, "model", format(arena, "%s export %s run -o e.onnx", amosc, model),
	      (const char *[]){"e.onnx", NULL}, NULL);
	power(record, "model", format(arena, "%s run %s --data x=../x.npy -o o.npz", amosc, model),
	      (const char *[]){"o.npz", NULL}, NULL);
	power(record, "model",
	      format(arena, "%s build %s %s --bind batch=4 --target cpu -o t", amosc, model, loss),
	      (const char *[]){"t", NULL}, NULL);
	power(
	    record, "model",
	    format(arena, "%s build %s %s --bind batch=4 --target cpu -o t.o", amosc, model, loss),
	    (const char *[]){"t.o", NULL}, NULL);
}
