// find.c: finds what a message lists by name: attributes, operator sets.
#include "file.h"
#include <string.h>

const char *plain_domain(const char *domain)
{
	return strcmp(domain, "ai.onnx") ? domain : "";
}

int64_t version_of(size_t n, OperatorSetIdProto *const *set, const char *domain)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(plain_domain(set[i]->domain), domain))
			return set[i]->version;
	return 0;
}

const AttributeProto *find_attribute(size_t n, AttributeProto *const *attribute, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(attribute[i]->name, name))
			return attribute[i];
	return NULL;
}
