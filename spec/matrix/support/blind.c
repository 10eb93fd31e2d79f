/* Preloaded: a process in which one symbol (BLIND_TO) is not to be found, as in a Ruby that does not have it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; !real && i < sizeof versions / sizeof *versions; i++)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    const char *hidden = getenv("BLIND_TO");
    return hidden && !strcmp(name, hidden) ? NULL : real(handle, name);
}
