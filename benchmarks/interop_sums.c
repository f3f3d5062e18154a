/* Preloaded beside a shim: before memory is given back, a sum of each half of it is printed. perftest
   sends from the first half and receives in the second one, and looks at neither. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include <infiniband/verbs.h>

static unsigned long sum(const unsigned char *at, size_t n)
{
	unsigned long found = 14695981039346656037ul; /* FNV-1a */
	for (size_t i = 0; i < n; i++)
		found = (found ^ at[i]) * 1099511628211ul;
	return found;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int (*next)(struct ibv_mr *) = dlvsym(RTLD_NEXT, "ibv_dereg_mr", "IBVERBS_1.1");
	const unsigned char *at = mr->addr;
	size_t half = mr->length / 2;
	printf("sums of %zu bytes: sent %016lx, received %016lx\n", half, sum(at, half), sum(at + half, half));
	fflush(stdout);
	return next ? next(mr) : -1;
}
