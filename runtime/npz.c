// npz.c: reads and writes .npz files, NumPy's zip files of arrays, with libzip.
#include "rt.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>
#include <zlib.h>

// ---- reading --------------------------------------------------------------------------

static bool by_machine(zip_error_t *error)
{
	int kind = zip_error_system_type(error), cause = zip_error_code_system(error);
	errno = cause;
	return zip_error_code_zip(error) == ZIP_ER_MEMORY ||
	       (kind == ZIP_ET_ZLIB && cause == Z_MEM_ERROR) ||
	       (kind == ZIP_ET_SYS && cause && amos_errno_status() == AMOS_MACHINE);
}

static int zip_failure(zip_error_t *error, const char *path, const char *what)
{
	return amos_fail(by_machine(error) ? AMOS_MACHINE : AMOS_INPUT, "%s: %s: %s", path, what,
	                 zip_error_strerror(error));
}

static int read_entry(zip_t *zip, zip_uint64_t index, const char *path, struct amos_array *array)
{
	zip_stat_t about;
	zip_file_t *file =
	    zip_stat_index(zip, index, 0, &about) ? NULL : zip_fopen_index(zip, index, 0);
	if (!file)
		return zip_failure(zip_get_error(zip), path, "corrupt");
	void *bytes = malloc(about.size + 1);
	zip_int64_t got = bytes ? zip_fread(file, bytes, about.size) : -1;
	// libzip compares the checksum when it reads the end.
	char end;
	if (got >= 0 && zip_fread(file, &end, 1))
		got = -1;
	int status = by_machine(zip_file_get_error(file))
	                 ? zip_failure(zip_file_get_error(file), path, "cannot read")
	                 : AMOS_DONE;
	zip_fclose(file);
	if (!bytes)
		return amos_no_memory(path);
	if (got != (zip_int64_t)about.size) {
		free(bytes);
		return status ? status
		              : amos_fail(AMOS_INPUT, "%s: corrupt entry '%s'", path, about.name);
	}
	struct amos_blob blob = {bytes, about.size, false};
	char where[1024];
	snprintf(where, sizeof where, "%s:%s", path, array->name);
	status = amos_array_npy(array, where, &blob);
	amos_blob_free(&blob);
	return status;
}

int amos_arrays_npz(const char *path, const char *key, struct amos_arrays *to)
{
	int code, file = amos_input(path, 0);
	if (file < 0)
		return amos_fail_errno("read", path);
	zip_t *zip = zip_fdopen(file, 0, &code);
	if (!zip) {
		close(file);
		zip_error_t error;
		zip_error_init_with_code(&error, code);
		int status = zip_failure(&error, path, "cannot read as npz");
		zip_error_fini(&error);
		return status;
	}
	zip_int64_t count = zip_get_num_entries(zip, 0);
	int status = AMOS_DONE;
	for (zip_int64_t i = 0; !status && i < count; i++) {
		const char *entry = zip_get_name(zip, (zip_uint64_t)i, 0);
		size_t size = entry ? strlen(entry) : 0;
		if (!entry) {
			status = zip_failure(zip_get_error(zip), path, "corrupt");
			break;
		}
		if (size <= 4 || strcmp(entry + size - 4, ".npy")) // not an array
			continue;
		size -= 4;
		if (key && (strlen(key) != size || strncmp(entry, key, size)))
			continue;
		struct amos_array *array = amos_arrays_add(to, path, entry, size);
		status = array ? read_entry(zip, (zip_uint64_t)i, path, array) : AMOS_MACHINE;
	}
	zip_discard(zip);
	return status;
}

// ---- writing --------------------------------------------------------------------------

// Returns the header and elements of one array, to be freed by the caller; NULL: out of memory.
static char *npy_bytes(const struct amos_array *array, size_t *count)
{
	int type = array->type == AMOS_bf16 ? AMOS_f32 : array->type;
	int64_t elements = amos_count(array->rank, array->dim);
	char shape[256] = "", header[512];
	for (int a = 0, at = 0; a < array->rank; a++)
		at += snprintf(shape + at, sizeof shape - (size_t)at, "%lld,%s",
		               (long long)array->dim[a], a + 1 < array->rank ? " " : "");
	int size = snprintf(header, sizeof header,
	                    "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
	                    amos_types[type].bytes > 1 ? '<' : '|', amos_formats[type].npy, shape);
	size_t start = ((size_t)size + 11 + 63) / 64 * 64; // elements begin at a multiple of 64
	*count = start + (size_t)(elements * amos_types[type].bytes);
	char *to = malloc(*count);
	if (!to)
		return NULL;
	memset(to, ' ', start);
	memcpy(to, "\x93NUMPY\x01\x00", 8);
	to[8] = (char)((start - 10) & 255);
	to[9] = (char)((start - 10) >> 8);
	memcpy(to + 10, header, (size_t)size);
	to[start - 1] = '\n';
	if (type == array->type)
		memcpy(to + start, array->bytes, *count - start);
	else
		for (int64_t i = 0; i < elements; i++)
			((float *)(to + start))[i] =
			    (float)amos_number(array->bytes, array->type, i);
	return to;
}

static bool add_array(zip_t *zip, const char *array, const char *bytes, size_t count)
{
	char *name = NULL;
	zip_source_t *source = zip_source_buffer(zip, bytes, count, 0);
	if (!source)
		return false;
	zip_int64_t index = asprintf(&name, "%s.npy", array) < 0
	                        ? -1
	                        : zip_file_add(zip, name, source, ZIP_FL_ENC_UTF_8);
	free(name);
	if (index < 0) {
		zip_source_free(source);
		return false;
	}
	// Equal arrays give equal bytes: the date is fixed to the first that zip can represent.
	enum { FIRST_DAY = 1 << 5 | 1 };
	return !zip_file_set_dostime(zip, (zip_uint64_t)index, 0, FIRST_DAY, 0) &&
	       !zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0);
}

// libzip's write callback, into the stream of a temporary file.
static zip_int64_t to_stream(void *stream, void *data, zip_uint64_t count, zip_source_cmd_t what)
{
	FILE *to = stream;
	zip_error_t error;
	const zip_source_args_seek_t *seek;
	switch (what) {
	case ZIP_SOURCE_SUPPORTS:
		return ZIP_SOURCE_SUPPORTS_WRITABLE;
	case ZIP_SOURCE_STAT:
		zip_stat_init(data);
		return sizeof(zip_stat_t);
	case ZIP_SOURCE_ERROR:
		zip_error_init_with_code(&error, ZIP_ER_WRITE);
		return zip_error_to_data(&error, data, count);
	case ZIP_SOURCE_WRITE:
		return fwrite(data, 1, count, to) == count ? (zip_int64_t)count : -1;
	case ZIP_SOURCE_SEEK_WRITE:
		seek = data;
		return fseeko(to, seek->offset, seek->whence);
	case ZIP_SOURCE_TELL_WRITE:
		return ftello(to);
	default:
		return 0;
	}
}

int amos_npz_write(const char *path, int64_t n, const struct amos_array *arrays)
{
	struct amos_temp_file file;
	int status = amos_file_open(&file, path);
	if (status)
		return status;
	if (!n) { // an empty zip file, which libzip would not write: only its end record
		static const char end[22] = "PK\5\6";
		fwrite(end, 1, sizeof end, file.to);
		return amos_file_keep(&file);
	}
	// libzip reads the arrays when it closes the file. If it fails to take a buffer, whether it
	// freed it is unknown, so the buffers are freed here.
	char **bytes = calloc((size_t)n, sizeof *bytes);
	zip_source_t *source = zip_source_function_create(to_stream, file.to, NULL);
	zip_t *zip = source ? zip_open_from_source(source, ZIP_TRUNCATE, NULL) : NULL;
	bool good = zip && bytes;
	if (!zip)
		zip_source_free(source);
	for (int64_t i = 0; good && i < n; i++) {
		size_t count;
		bytes[i] = npy_bytes(&arrays[i], &count);
		good = bytes[i] && add_array(zip, arrays[i].name, bytes[i], count);
	}
	good = good && !zip_close(zip);
	if (!good) {
		status = ferror(file.to) ? amos_fail_errno("write", path)
		                         : amos_fail(AMOS_MACHINE, "%s: cannot write: %s", path,
		                                     zip ? zip_strerror(zip) : "out of memory");
		if (zip)
			zip_discard(zip);
		amos_file_drop(&file);
	}
	for (int64_t i = 0; bytes && i < n; i++)
		free(bytes[i]);
	free(bytes);
	return good ? amos_file_keep(&file) : status;
}
