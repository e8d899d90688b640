// peer.c: runs other frameworks on a model and a batch, for amosc bench --peer.
// A peer is a Python script; bench/peer.py says how it is called and what it prints.
// Invariant: the batch is in a file without a name, so nothing is left if a signal ends the
// process.
#include "tool.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Framework {
	const char *name;
	bool gpu;                  // runs on the GPU of --target, too
	const char *precisions[4]; // of --precision, by which the script calls them
} Framework;

static const Framework frameworks[] = {
    {"torch", true, {"f32", "tf32", "bf16"}},
    {"ort", false, {"f32"}},
};

// Returns the peer of a value of --peer, and its Python in *python.
static const Framework *peer_named(Session *session, const char *value, const char **python)
{
	size_t length = strcspn(value, "=");
	*python = value[length] ? value + length + 1 : "python3";
	for (int i = 0; i < COUNT(frameworks); i++) {
		const char *name = frameworks[i].name;
		if (strlen(name) == length && !strncmp(name, value, length) && **python)
			return &frameworks[i];
	}
	bad_usage(session, format(session->arena,
	                          "expected --peer torch or --peer ort, with =PYTHON or without, "
	                          "found '%s'",
	                          value));
}

// True if --target is a GPU that peers can run on: they do not know those of OpenCL.
static bool on_gpu(const Session *session)
{
	const char *device = target_device(target_of(session));
	return device && strcmp(device, "opencl");
}

// Fails if the peer cannot train as the options say.
static void check_peer(Session *session, const Framework *peer)
{
	const char *precision = choice(session, OPT_precision, "f32");
	Text known = {.arena = session->arena};
	bool knows = false;
	for (int k = 0; k < COUNT(peer->precisions) && peer->precisions[k]; k++) {
		knows |= !strcmp(peer->precisions[k], precision);
		say(&known, "%s%s", k ? " or " : "", peer->precisions[k]);
	}
	if (!knows)
		bad_usage(session,
		          format(session->arena, "--peer %s: expected --precision %s, found '%s'",
		                 peer->name, known.at, precision));
	if (on_gpu(session) && !peer->gpu)
		bad_usage(session,
		          format(session->arena, "--peer %s: expected --target cpu, found '%s'",
		                 peer->name, choice(session, OPT_target, NULL)));
}

void check_peers(Session *session)
{
	const char *python;
	for (int i = 0; i < session->choices.count; i++)
		if (session->choices.at[i].option == OPT_peer)
			check_peer(session,
			           peer_named(session, session->choices.at[i].value, &python));
	if (chosen(session, OPT_peer) && !strcmp(session->path, "-"))
		bad_usage(session, "--peer reads the model again: expected a file");
}

// ---- the batch ------------------------------------------------------------------------

static void close_file(void *file)
{
	close((int)(intptr_t)file);
}

// Writes the inputs as an .npz file. Returns the path by which other processes open it until the
// session ends.
static const char *write_batch(Session *session, const Graph *g, const struct amos *open)
{
	Arena *arena = session->arena;
	VEC(struct amos_array) list = {0};
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		struct amos_array array = {.name = s->name, .type = s->type, .rank = s->shape.rank};
		memcpy(array.dim, s->shape.dim, sizeof(int64_t) * (size_t)s->shape.rank);
		array.bytes = amos_slot_bytes(open, i);
		if (s->kind == S_input)
			PUSH(arena, list, array);
	}
	char folder[PATH_MAX];
	need_done(amos_temp_folder(folder, sizeof folder, "amosc"));
	const char *path = format(arena, "%s/batch.npz", folder);
	int status = amos_npz_write(path, list.count, list.at);
	int file = status ? -1 : openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (!status && file < 0)
		status = amos_fail_errno("open", path);
	unlink(path);
	rmdir(folder);
	need_done(status);
	at_end(arena, close_file, (void *)(intptr_t)file);
	return format(arena, "/proc/%d/fd/%d", (int)getpid(), file);
}

// ---- a peer ---------------------------------------------------------------------------

// Runs a command. Returns what it prints, and its exit status in *status; NULL if it cannot run.
static const char *output_of(Arena *arena, char *const *command, int *status)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC))
		return NULL;
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		execvp(command[0], command);
		_exit(127);
	}
	close(ends[1]);
	Text text = {.arena = arena};
	char bytes[4096];
	ssize_t count;
	say(&text, "%s", "");
	while ((count = read(ends[0], bytes, sizeof bytes)) > 0 || (count < 0 && errno == EINTR))
		say(&text, "%.*s", (int)MAX(count, 0), bytes);
	close(ends[0]);
	return child > 0 && waitpid(child, status, 0) == child ? text.at : NULL;
}

// Returns the last line of the text that is a JSON object, or NULL.
static json_t *last_object(const char *text)
{
	json_t *found = NULL;
	for (const char *line = text; *line;
	     line += strcspn(line, "\n") + (strchr(line, '\n') != 0)) {
		json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
		if (json_is_object(object)) {
			json_decref(found);
			found = object;
		} else {
			json_decref(object);
		}
	}
	return found;
}

// Returns a number that the peer printed; NAN if it did not.
static double number_at(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	return json_is_number(value) ? json_number_value(value) : NAN;
}

static Peer run_peer(Session *session, const char *value, const char *batch)
{
	Arena *arena = session->arena;
	const char *python, *name = peer_named(session, value, &python)->name,
	                    *folder = installed_file(arena, "peers", AMOSC_PEERS_BUILT),
	                    *script = format(arena, "%s/peer_%s", folder, name),
	                    *where = format(arena, "--peer %s", value),
	                    *precision = choice(session, OPT_precision, "f32"), *setting = "";
	if (strcmp(precision, "f32"))
		setting = format(arena, "eager-%s", precision);
	if (on_gpu(session))
		setting = format(arena, "%s-cuda", *setting ? setting : "eager");
	const char *command[] = {python,
	                         script,
	                         session->path,
	                         batch,
	                         choice(session, OPT_loss, ""),
	                         choice(session, OPT_threads, "0"),
	                         choice(session, OPT_seconds, "3"),
	                         setting,
	                         NULL};
	int status = 0;
	fflush(stdout);
	const char *text = output_of(arena, (char *const *)command, &status);
	json_t *found = text ? keep_json(session, last_object(text)) : NULL;
	if (text && WIFEXITED(status) && WEXITSTATUS(status) == 127)
		fail(where, "cannot run '%s'" HELP "name a Python, as in --peer %s=PYTHON", python,
		     name);
	const char *error = text_at(found, "error");
	if (*error)
		fail(where, "%s", error);
	Peer peer = {.name = name,
	             .version = text_at(found, "version"),
	             .step = number_at(found, "median_s"),
	             .least = number_at(found, "least_s"),
	             .first = number_at(found, "first_s"),
	             .loss = number_at(found, "loss"),
	             .bytes = 1048576 * number_at(found, "peak_mb"),
	             .steps = (int)number_at(found, "steps")};
	if (!found || status || !(peer.step > 0))
		fail(where, "%s %s failed", python, script);
	return peer;
}

Peers run_peers(Session *session, const Graph *g, const struct amos *open)
{
	Peers peers = {0};
	const char *batch = chosen(session, OPT_peer) ? write_batch(session, g, open) : NULL;
	for (int i = 0; i < session->choices.count; i++)
		if (session->choices.at[i].option == OPT_peer)
			PUSH(session->arena, peers,
			     run_peer(session, session->choices.at[i].value, batch));
	return peers;
}
