// measure.c: measures data for the optimizer and eta: the fraction of labels, the RMS of inputs.
#include "rt.h"
#include <math.h>

// Returns the mean over the training part of an array, of all of it or of MANY elements sampled
// evenly: the mean square, or with `ignore` the fraction that differs from it.
static double mean_over(const struct amos_data *data, const struct amos_array *array,
                        int64_t ignore)
{
	enum { MANY = 1 << 20 };
	int64_t count = amos_elements(array->rank, array->dim);
	if (!data->exact && array->rank)
		count = (int64_t)((double)count * data->split);
	double sum = 0;
	int64_t taken = count < MANY ? count : MANY;
	for (int64_t i = 0; i < taken; i++) {
		int64_t at = count > MANY ? (int64_t)(amos_mix((uint64_t)i) % (uint64_t)count) : i;
		double x = amos_number(array->bytes, array->type, at);
		sum += ignore ? x != (double)ignore : x * x;
	}
	return taken ? sum / (double)taken : 0;
}

double amos_data_labels(const struct amos_data *data, const char *name, int64_t elements,
                        int64_t ignore)
{
	const struct amos_source *source = amos_source_of(data, name);
	const struct amos_array *array = amos_source_array(data, source);
	double part = 1;
	if (source && source->masked)
		part = data->mask;
	else if (array && array->bytes && ignore)
		part = mean_over(data, array, ignore);
	return part * (double)elements;
}

double amos_data_independent_batches(const struct amos_data *data)
{
	double part = 1;
	for (int i = 0; i < data->nsources; i++)
		if (data->sources[i].masked)
			part = data->mask;
	return (double)amos_data_batches(data) / part;
}

double amos_data_rms(const struct amos_data *data, const char *name)
{
	const struct amos_source *source = amos_source_of(data, name);
	const struct amos_array *array = amos_source_array(data, source);
	if (!source)
		return NAN;
	if (!array)
		return source->fill;
	double square = array->bytes ? mean_over(data, array, 0) : source->mean_square;
	return sqrt(square) / amos_divisor(data, source, 'f');
}
