/* How long a fork takes in a program whose threads allocate and use streams: one reads lines, one flushes all streams, one forks.
   Usage: streams FORKS. Prints the milliseconds of each fork. With MEMINTRO_LIVE=full or sampled it loads the hook itself. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "memintro_program.h"

static volatile int is_over;

static void *reads(void *unused) {
    FILE *file = fopen("/etc/passwd", "r");
    while (!is_over) {
        char *line = NULL;
        size_t room = 0;
        if (getline(&line, &room, file) < 0) rewind(file);
        free(line);
    }
    fclose(file);
    return unused;
}

static void *flushes(void *unused) {
    while (!is_over) fflush(NULL);
    return unused;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

int main(int count, char **arguments) {
    int forks = count > 1 ? atoi(arguments[1]) : 100;
    const char *live = getenv("MEMINTRO_LIVE");
    if (live) {
        memintro_start_options options = {strcmp(live, "full") ? MEMINTRO_SAMPLED : MEMINTRO_FULL, 0, 0, 0, 0};
        if (memintro_find()->start(&options) < 0) return 71;
    }
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, reads, NULL);
    pthread_create(&threads[1], NULL, flushes, NULL);
    double *times = malloc((size_t)forks * sizeof *times);
    for (int i = 0; i < forks; i++) {
        double begin = now();
        pid_t child = fork();
        if (child == 0) _exit(0);
        times[i] = now() - begin;
        waitpid(child, NULL, 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < forks; i++) printf("%.3f\n", times[i]);
    return 0;
}
