// ops.c: implements amosc ops: lists the operators that the reader knows.
#include "tool.h"
#include <string.h>

void verb_ops(Session *session)
{
	int count;
	const OpInfo *op = op_table(&count);
	json_t *list = json_array();
	for (int i = 0; i < count; i++)
		json_array_append_new(list,
		                      json_pack("{ss ss si ss sb ss ss ss}", "op", op[i].name,
		                                "domain", op[i].domain, "since", op[i].since,
		                                "types", op[i].types, "forward", op[i].forward,
		                                "differentiable", op[i].differentiable, "gradient",
		                                op[i].gradient, "note", op[i].note));
	if (chosen(session, OPT_json)) {
		print_json(json_pack("{so}", "ops", list));
		return;
	}
	json_decref(list);
	printf("%-34s %5s  %-6s  %-7s  %-8s  %s\n", "operator", "since", "types", "forward",
	       "gradient", "note");
	for (int i = 0; i < count; i++) {
		char name[128];
		snprintf(name, sizeof name, "%s%s%s", op[i].domain, *op[i].domain ? "." : "",
		         op[i].name);
		printf("%-34s %5d  %-6s  %-7s  %-8s  %s\n", name, op[i].since, op[i].types,
		       op[i].forward ? "yes" : "no", op[i].gradient, op[i].note);
	}
	printf("\n%s", gradient_totals(session->arena));
}
