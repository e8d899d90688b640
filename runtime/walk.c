// walk.c: visits the files of a directory in byte order of names, so the same files come in the
// same order everywhere.
#include "rt.h"
#include <errno.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

int amos_walk(const char *path, amos_visit *visit, void *context)
{
	char *paths[] = {(char *)path, NULL};
	FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
	if (!walk)
		return amos_fail_errno("read", path);
	int status = AMOS_DONE;
	for (FTSENT *entry; !status && (entry = fts_read(walk));) {
		// Links to directories are not followed, since they may form cycles.
		struct stat about = *entry->fts_statp;
		bool link = entry->fts_info == FTS_SL && !stat(entry->fts_accpath, &about);
		bool file = entry->fts_info == FTS_F || (link && S_ISREG(about.st_mode));
		if (file && about.st_size)
			status = visit(context, entry->fts_accpath);
		if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR) {
			errno = entry->fts_errno;
			status = amos_fail_errno("read", entry->fts_path);
		}
	}
	if (!status && errno)
		status = amos_fail_errno("read", path);
	fts_close(walk);
	return status;
}

bool amos_is_folder(const char *path)
{
	struct stat about;
	return !stat(path, &about) && S_ISDIR(about.st_mode);
}
