/* Two libfabrics of different releases in one process, each with SRD, talk to each other: side by
 * side (`local`), or in linker namespaces of their own (`apart`). Their files are named first. */

#define _GNU_SOURCE
#include "common.h"
#include <dlfcn.h>

static void load(struct api *api, const char *file, int apart)
{
	void *library = apart ? dlmopen(LM_ID_NEWLM, file, RTLD_NOW | RTLD_LOCAL)
			      : dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fail(__LINE__, "%s", dlerror());
	*(void **)&api->getinfo = dlsym(library, "fi_getinfo");
	*(void **)&api->freeinfo = dlsym(library, "fi_freeinfo");
	*(void **)&api->dupinfo = dlsym(library, "fi_dupinfo");
	*(void **)&api->fabric = dlsym(library, "fi_fabric");
	uint32_t (*version)(void);
	*(void **)&version = dlsym(library, "fi_version");
	printf("%s: %u.%u\n", file, FI_MAJOR(version()), FI_MINOR(version()));
	fflush(stdout);
}

static uint32_t version_of(const char *text)
{
	unsigned major, minor;
	EXPECT(sscanf(text, "%u.%u", &major, &minor), 2);
	return FI_VERSION(major, minor);
}

/* FILE VERSION FILE VERSION local|apart: versions are those that are asked for. */
int main(int count, char **arguments)
{
	struct api first, second;
	struct node a, b, c;

	EXPECT(count, 6);
	int apart = strcmp(arguments[5], "apart") == 0;
	load(&first, arguments[1], 0);
	load(&second, arguments[3], apart);
	uint32_t wanted[2] = {version_of(arguments[2]), version_of(arguments[4])};
	for (int round = 0; round < 3; round++) {
		node_open(&first, &a, wanted[0], FI_THREAD_SAFE);
		node_open(&second, &b, wanted[1], FI_THREAD_SAFE);
		node_open(&first, &c, wanted[0], FI_THREAD_SAFE);
		node_meet(&a, &b);
		node_meet(&b, &a);
		exchange(&a, &b, 100, 1);
		exchange(&b, &a, 300000, 2);
		node_close(&first, &c);
		exchange(&a, &b, 300000, 3);
		/* One is done, the other goes on. */
		if (round & 1) {
			node_close(&first, &a);
			node_open(&first, &a, wanted[0], FI_THREAD_SAFE);
			node_meet(&a, &b);
			node_meet(&b, &a);
			exchange(&a, &b, 5000, 4);
		}
		node_close(&second, &b);
		node_close(&first, &a);
	}
	printf("both were used\n");
	return 0;
}
