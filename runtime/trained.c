// trained.c: decides where the trained model of a run goes, and which weights it has.
#include "rt.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

bool amos_has_better(const struct amos_result *r)
{
	return isfinite(r->best.loss) && r->best.step != r->step;
}

char *amos_trained_path(const char *dir)
{
	char *path;
	int stem = (int)strlen(dir);
	while (stem > 1 && dir[stem - 1] == '/')
		stem--;
	return asprintf(&path, "%.*s.onnx", stem, dir) < 0 ? NULL : path;
}

int amos_trained_check(const char *dir, const char *path, bool overwrite, bool *wrote)
{
	struct stat about;
	int status = amos_output_check(path);
	if (!status)
		status = amos_command_wrote(dir, path, wrote);
	bool exists = !lstat(path, &about);
	if (!status && !exists && errno != ENOENT) // such as a name that is too long
		return amos_fail_errno("write", path);
	if (status || !exists || overwrite || *wrote)
		return status;
	return amos_fail(AMOS_INPUT,
	                 "%s: the trained model would replace this file, which the run did not "
	                 "write" HELP "move it away, or train with --overwrite or another -o DIR",
	                 path);
}

int amos_load_trained(struct amos *m, const char *dir, const struct amos_result *r, bool last)
{
	return amos_has_better(r) && !last ? amos_load(m, dir) : AMOS_DONE;
}
