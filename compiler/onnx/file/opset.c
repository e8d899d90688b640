// opset.c: finds the operator set that a node refers to.
#include "file.h"
#include <string.h>

const char *plain_domain(const char *domain)
{
	return strcmp(domain, "ai.onnx") ? domain : "";
}

int64_t version_of(size_t n, const OperatorSetIdProto *const *set, const char *domain)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(plain_domain(set[i]->domain), domain))
			return set[i]->version;
	return 0;
}
