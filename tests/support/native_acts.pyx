# cython: language_level=3, binding=False
"""Functions of the C library that change files, called by native code on each kind of thread."""

import os

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <sys/xattr.h>
    #include <unistd.h>
    #include <utime.h>

    static int closed(int fd) { return fd < 0 ? -1 : close(fd); }
    static int closed_file(FILE *file) { return file ? fclose(file) : -1; }

    /* A directory and the rest of a path in it. */
    static int split(const char *path, const char **name) {
        char *copy = strdup(path), *slash = strrchr(copy, '/');
        int dir;
        *slash = 0;
        *name = path + (slash - copy) + 1;
        dir = open(*copy ? copy : "/", O_RDONLY | O_DIRECTORY);
        free(copy);
        return dir;
    }

    struct given { const char *function, *path, *other; int result, error; };

    #define IS(name) (!strcmp(function, name))

    static int act(const char *function, const char *path, const char *other) {
        const char *name;
        int dir, result;
        char template[4096];
        FILE *file;
        snprintf(template, sizeof template, "%sXXXXXX", path);
        if (IS("open")) return closed(open(path, O_WRONLY | O_CREAT, 0600));
        if (IS("open64")) return closed(open64(path, O_RDWR | O_CREAT, 0600));
        if (IS("open to read")) return closed(open(path, O_RDONLY));
        if (IS("openat")) {
            dir = split(path, &name);
            result = closed(openat(dir, name, O_WRONLY | O_CREAT, 0600));
            close(dir);
            return result;
        }
        if (IS("creat")) return closed(creat(path, 0600));
        if (IS("fopen")) return closed_file(fopen(path, "w"));
        if (IS("fopen to append")) return closed_file(fopen(path, "a+"));
        if (IS("freopen")) {
            file = fopen("/dev/null", "r");
            return closed_file(freopen(path, "w", file));
        }
        if (IS("mkstemp")) return closed(mkstemp(template));
        if (IS("mkostemp")) return closed(mkostemp(template, O_CLOEXEC));
        if (IS("mkdtemp")) return mkdtemp(template) ? 0 : -1;
        if (IS("unlink")) return unlink(path);
        if (IS("unlinkat")) return unlinkat(AT_FDCWD, path, 0);
        if (IS("remove")) return remove(path);
        if (IS("rmdir")) return rmdir(path);
        if (IS("rename")) return rename(path, other);
        if (IS("rename here")) return rename(other, path);
        if (IS("renameat")) return renameat(AT_FDCWD, path, AT_FDCWD, other);
        if (IS("renameat2")) return renameat2(AT_FDCWD, path, AT_FDCWD, other, 0);
        if (IS("link")) return link(other, path);
        if (IS("linkat")) return linkat(AT_FDCWD, other, AT_FDCWD, path, 0);
        if (IS("symlink")) return symlink("file", path);
        if (IS("symlinkat")) return symlinkat("file", AT_FDCWD, path);
        if (IS("mkdir")) return mkdir(path, 0700);
        if (IS("mkdirat")) return mkdirat(AT_FDCWD, path, 0700);
        if (IS("mkfifo")) return mkfifo(path, 0600);
        if (IS("mknod")) return mknod(path, S_IFREG | 0600, 0);
        if (IS("truncate")) return truncate(path, 0);
        if (IS("chmod")) return chmod(path, 0600);
        if (IS("fchmodat")) return fchmodat(AT_FDCWD, path, 0600, 0);
        if (IS("chown")) return chown(path, getuid(), getgid());
        if (IS("lchown")) return lchown(path, getuid(), getgid());
        if (IS("fchownat")) return fchownat(AT_FDCWD, path, getuid(), getgid(), 0);
        if (IS("utime")) return utime(path, NULL);
        if (IS("utimes")) return utimes(path, NULL);
        if (IS("utimensat")) return utimensat(AT_FDCWD, path, NULL, 0);
        if (IS("setxattr")) return setxattr(path, "user.a", "b", 1, 0);
        if (IS("syscall open")) return closed(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, 0600));
        if (IS("syscall unlink")) return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
        if (IS("syscall mkdir")) return syscall(SYS_mkdirat, AT_FDCWD, path, 0700);
        if (IS("syscall rename")) return syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, other, 0);
        if (IS("dlsym")) {
            int (*found)(const char *, int, ...) = dlsym(RTLD_DEFAULT, "open");
            return closed(found(path, O_WRONLY | O_CREAT, 0600));
        }
        errno = ENOSYS;
        return -1;
    }

    static void *acting(void *data) {
        struct given *given = data;
        errno = 0;
        given->result = act(given->function, given->path, given->other);
        given->error = errno;
        return NULL;
    }

    static void on_thread(struct given *given) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, acting, given)) abort();
        pthread_join(thread, NULL);
    }
    """
    struct given:
        const char *function
        const char *path
        const char *other
        int result
        int error
    void *acting(void *data)
    void on_thread(given *data)


def act(function, path, other="", thread="attached"):
    """Call a function on a kind of thread; return 0, or the error."""
    function, path, other = function.encode(), os.fsencode(path), os.fsencode(other)
    cdef given asked
    asked.function, asked.path, asked.other = function, path, other
    asked.result, asked.error = 0, 0
    if thread == "attached":
        acting(&asked)
    elif thread == "released":
        with nogil:
            acting(&asked)
    elif thread == "native":
        with nogil:
            on_thread(&asked)
    elif thread == "native, waited for":
        on_thread(&asked)
    else:
        raise ValueError(thread)
    return asked.error if asked.result else 0
