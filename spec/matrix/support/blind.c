/* Preloaded: a process in which one symbol (BLIND_TO) is not to be found, as in a Ruby that does not have it, or in which
 * one (OTHERWISE) answers otherwise, as in a Ruby that keeps its things elsewhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int (*profile_frames)(int, int, unsigned long *, int *);

/* The kinds of internal objects have other numbers. */
static const char *other_imemo_name(int kind) { return kind & 1 ? "imemo_odd" : "imemo_even"; }

/* The innermost frame is another one. */
static int other_profile_frames(int start, int limit, unsigned long *frames, int *lines) {
    int count = profile_frames(start, limit, frames, lines);
    for (int i = 0; i < count / 2; i++) {
        unsigned long frame = frames[i];
        int line = lines[i];
        frames[i] = frames[count - 1 - i];
        lines[i] = lines[count - 1 - i];
        frames[count - 1 - i] = frame;
        lines[count - 1 - i] = line;
    }
    return count;
}

static void *otherwise(const char *name, void *found) {
    const char *wanted = getenv("OTHERWISE");
    if (!found || !wanted || strcmp(name, wanted)) return found;
    if (!strcmp(name, "rb_imemo_name")) return (void *)other_imemo_name;
    profile_frames = (int (*)(int, int, unsigned long *, int *))found;
    return (void *)other_profile_frames;
}

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; !real && i < sizeof versions / sizeof *versions; i++)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    const char *hidden = getenv("BLIND_TO");
    return hidden && !strcmp(name, hidden) ? NULL : otherwise(name, real(handle, name));
}
