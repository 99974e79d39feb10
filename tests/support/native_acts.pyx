# cython: language_level=3, binding=False
"""Functions of the C library, called by native code on each kind of thread: those that change files,
reach hosts, and start programs."""

import os

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <arpa/inet.h>
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <netdb.h>
    #include <pthread.h>
    #include <signal.h>
    #include <spawn.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <sys/un.h>
    #include <sys/wait.h>
    #include <sys/xattr.h>
    #include <unistd.h>
    #include <utime.h>

    /* musl has it only after 1.2.5. */
    int renameat2(int, const char *, int, const char *, unsigned) __attribute__((weak));
    /* What headers of glibc before 2.33 make of mknod(); not all C libraries have it. */
    int __xmknod(int, const char *, mode_t, dev_t *) __attribute__((weak));
    int __xmknodat(int, int, const char *, mode_t, dev_t *) __attribute__((weak));
    /* Since glibc 2.39. */
    int pidfd_spawn(int *, const char *, const posix_spawn_file_actions_t *,
                    const posix_spawnattr_t *, char *const *, char *const *) __attribute__((weak));
    int pidfd_spawnp(int *, const char *, const posix_spawn_file_actions_t *,
                     const posix_spawnattr_t *, char *const *, char *const *) __attribute__((weak));

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

    /* The address of a host with a port, or of a Unix socket. */
    static socklen_t address(const char *host, const char *port, struct sockaddr_storage *into) {
        struct sockaddr_in *four = (struct sockaddr_in *)into;
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)into;
        struct sockaddr_un *local = (struct sockaddr_un *)into;
        memset(into, 0, sizeof *into);
        if (strchr(host, '/')) {
            local->sun_family = AF_UNIX;
            strcpy(local->sun_path, host);
            return sizeof *local;
        }
        if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
            four->sin_family = AF_INET;
            four->sin_port = htons(atoi(port));
            return sizeof *four;
        }
        inet_pton(AF_INET6, host, &six->sin6_addr);
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(atoi(port));
        return sizeof *six;
    }

    static int on_network(const char *function, const char *host, const char *port) {
        struct sockaddr_storage to;
        struct addrinfo hints, *found;
        struct hostent made, *answer;
        char buffer[8192] = "hello", name[256];
        socklen_t length = address(host, port, &to);
        int is_stream = !strncmp(function, "connect", 7) || IS("syscall connect") || IS("listen");
        int family = strchr(host, '/') || strchr(host, '.') || strchr(host, ':') ? to.ss_family : AF_INET;
        int socket_, result = -1, error;
        if (IS("getaddrinfo")) {
            memset(&hints, 0, sizeof hints);
            hints.ai_family = AF_INET;
            result = getaddrinfo(host, port, &hints, &found);
            if (!result) freeaddrinfo(found);
            return result == EAI_SYSTEM || !result ? -!!result : (errno = EAGAIN, -1);
        }
        if (IS("gethostbyname")) {
            answer = gethostbyname(host);
            return answer ? 0 : -1;
        }
        if (IS("gethostbyname_r")) {
            result = gethostbyname_r(host, &made, buffer, sizeof buffer, &answer, &error);
            return answer ? 0 : (errno = result, -1);
        }
        if (IS("getnameinfo")) {
            result = getnameinfo((void *)&to, length, name, sizeof name, NULL, 0, NI_NAMEREQD);
            return result == EAI_SYSTEM ? -1 : 0;
        }
        if (IS("gethostbyaddr")) {
            struct sockaddr_in *four = (struct sockaddr_in *)&to;
            h_errno = 0;
            return gethostbyaddr(&four->sin_addr, 4, AF_INET) || h_errno != NO_RECOVERY ? 0 : -1;
        }
        if (IS("socket")) return closed(socket(AF_PACKET, SOCK_DGRAM, 0));
        socket_ = socket(family, is_stream ? SOCK_STREAM : SOCK_DGRAM, 0);
        if (IS("connect")) result = connect(socket_, (void *)&to, length);
        if (IS("connect and end")) {
            /* No family ends a connection. */
            result = connect(socket_, (void *)&to, length);
            to.ss_family = AF_UNSPEC;
            result |= connect(socket_, (void *)&to, length);
        }
        if (IS("syscall connect")) result = syscall(SYS_connect, socket_, &to, length);
        if (IS("bind")) result = bind(socket_, (void *)&to, length);
        if (IS("listen")) result = listen(socket_, 1);
        if (IS("sendto")) result = sendto(socket_, "hello", 5, 0, (void *)&to, length);
        if (!strncmp(function, "sendm", 5)) {
            struct iovec bytes = {"hello", 5};
            struct mmsghdr messages[1];
            memset(messages, 0, sizeof messages);
            messages[0].msg_hdr.msg_name = &to;
            messages[0].msg_hdr.msg_namelen = length;
            messages[0].msg_hdr.msg_iov = &bytes;
            messages[0].msg_hdr.msg_iovlen = 1;
            if (IS("sendmsg")) result = sendmsg(socket_, &messages[0].msg_hdr, 0);
            else if (IS("sendmmsg, syscall")) result = syscall(SYS_sendmmsg, socket_, messages, 1, 0);
            else result = sendmmsg(socket_, messages, 1, 0);
        }
        error = errno;
        if (socket_ >= 0) close(socket_);
        errno = error;
        return result < 0 ? -1 : 0;
    }

    /* Wait for a child, whose status is 0 or an error. */
    static int ended(pid_t pid) {
        int status = -1;
        if (pid < 0) return -1;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR);
        errno = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
        return errno ? -1 : 0;
    }

    /* The same for a child that a descriptor stands for. */
    static int ended_of(int fd) {
        siginfo_t info;
        int failed = waitid(3 /* P_PIDFD */, fd, &info, WEXITED);
        close(fd);
        errno = failed ? errno : info.si_status;
        return errno ? -1 : 0;
    }

    static int on_processes(const char *function, const char *path, const char *command) {
        extern char **environ;
        char *const words[] = {"touch", (char *)path, NULL};
        FILE *output;
        pid_t pid;
        if (IS("system")) return system(command);
        if (IS("popen")) {
            output = popen(command, "r");
            return output ? pclose(output) : -1;
        }
        if (IS("posix_spawn") || IS("posix_spawnp")) {
            int failed = IS("posix_spawn")
                ? posix_spawn(&pid, "/usr/bin/touch", NULL, NULL, words, environ)
                : posix_spawnp(&pid, "touch", NULL, NULL, words, environ);
            return failed ? (errno = failed, -1) : ended(pid);
        }
        if (IS("pidfd_spawn") || IS("pidfd_spawnp")) {
            int fd = -1, failed;
            if (!pidfd_spawn || !pidfd_spawnp) return on_processes(IS("pidfd_spawn") ? "posix_spawn" : "posix_spawnp", path, command);
            failed = IS("pidfd_spawn")
                ? pidfd_spawn(&fd, "/usr/bin/touch", NULL, NULL, words, environ)
                : pidfd_spawnp(&fd, "touch", NULL, NULL, words, environ);
            return failed ? (errno = failed, -1) : ended_of(fd);
        }
        if (IS("kill")) return kill(getppid(), SIGCONT);
        if (IS("kill 0")) return kill(getppid(), 0);
        if (IS("chdir")) return chdir(path);
        if (IS("chdir, syscall")) return syscall(SYS_chdir, path);
        if (IS("io_uring")) return syscall(SYS_io_uring_setup, 1, NULL);
        pid = fork();
        if (pid) return ended(pid);
        chdir("/");
        if (IS("execve")) execve("/usr/bin/touch", words, environ);
        if (IS("execv")) execv("/usr/bin/touch", words);
        if (IS("execvp")) execvp("touch", words);
        if (IS("execl")) execl("/usr/bin/touch", "touch", "-m", "-a", "-f", "-f", "-f", "--", path, (char *)NULL);
        if (IS("execlp")) execlp("touch", "touch", path, (char *)NULL);
        if (IS("execle")) execle("/usr/bin/touch", "touch", path, (char *)NULL, environ);
        if (IS("syscall execve")) syscall(SYS_execve, "/usr/bin/touch", words, environ);
        _exit(errno);
    }

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
        if (IS("renameat2")) return renameat2 ? renameat2(AT_FDCWD, path, AT_FDCWD, other, 0) : rename(path, other);
        if (IS("link")) return link(other, path);
        if (IS("linkat")) return linkat(AT_FDCWD, other, AT_FDCWD, path, 0);
        if (IS("symlink")) return symlink("file", path);
        if (IS("symlinkat")) return symlinkat("file", AT_FDCWD, path);
        if (IS("mkdir")) return mkdir(path, 0700);
        if (IS("mkdirat")) return mkdirat(AT_FDCWD, path, 0700);
        if (IS("mkfifo")) return mkfifo(path, 0600);
        if (IS("mknod")) return mknod(path, S_IFREG | 0600, 0);
        if (IS("__xmknod") || IS("__xmknodat")) {
            dev_t device = 0;
            if (!__xmknod || !__xmknodat) return mknod(path, S_IFREG | 0600, 0);
            return IS("__xmknod")
                ? __xmknod(0, path, S_IFREG | 0600, &device)
                : __xmknodat(0, AT_FDCWD, path, S_IFREG | 0600, &device);
        }
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
        #ifdef SYS_renameat
        if (IS("syscall renameat")) return syscall(SYS_renameat, AT_FDCWD, path, AT_FDCWD, other);
        #endif
        if (IS("syscall chmod")) return syscall(SYS_fchmodat, AT_FDCWD, path, 0600);
        if (IS("syscall chmod with flags")) return syscall(452, AT_FDCWD, path, 0600, 0);
        if (IS("syscall chown")) return syscall(SYS_fchownat, AT_FDCWD, path, getuid(), getgid(), 0);
        if (IS("syscall setxattr")) return syscall(SYS_setxattr, path, "user.a", "b", 1, 0);
        if (IS("syscall removexattr")) return syscall(SYS_removexattr, path, "user.b");
        #ifdef SYS_mknod
        if (IS("syscall mknod")) return syscall(SYS_mknod, path, S_IFREG | 0600, 0);
        #else
        if (IS("syscall mknod")) return syscall(SYS_mknodat, AT_FDCWD, path, S_IFREG | 0600, 0);
        #endif
        if (IS("dlsym")) {
            int (*found)(const char *, int, ...) = dlsym(RTLD_DEFAULT, "open");
            return closed(found(path, O_WRONLY | O_CREAT, 0600));
        }
        if (strstr("connect and end syscall connect bind listen sendto sendmsg sendmmsg, syscall sendmmsg socket "
                   "getaddrinfo gethostbyname gethostbyname_r getnameinfo gethostbyaddr", function))
            return on_network(function, path, other);
        return on_processes(function, path, other);
    }

    /* The nanoseconds of a call of open() that fails at once. */
    static double opens(int count) {
        struct timespec began, ended;
        clock_gettime(CLOCK_MONOTONIC, &began);
        for (int index = 0; index < count; index++) open("", O_RDONLY);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        return ((ended.tv_sec - began.tv_sec) * 1e9 + ended.tv_nsec - began.tv_nsec) / count;
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
    double opens(int count)
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


def time_opens(count):
    """The nanoseconds of a call of `open` that fails at once."""
    return opens(count)
