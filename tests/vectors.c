// vectors.c: compares arrays with vectors in JSON.
#include "vectors.h"
#include <math.h>

double difference(const Array *got, const json_t *expected)
{
	double most = 0, size = 0;
	size_t count = (size_t)count_of(&got->shape);
	if (json_array_size(expected) != count)
		return INFINITY;
	for (size_t i = 0; i < count; i++) {
		double w = json_number_value(json_array_get(expected, i));
		size = fmax(size, fabs(w));
		most = fmax(most, fabs(got->f[i] - w));
	}
	return most / size;
}
