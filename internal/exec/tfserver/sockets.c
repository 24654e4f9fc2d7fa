#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Where binds to "all addresses" at this port go: to the Unix socket path, or to the host if the path
 * is empty. */
static struct {
	bool on, v4;
	uint16_t port;
	struct in6_addr host; /* v4-mapped if v4 */
	struct sockaddr_un path;
	bool used;
	int fd; /* that was bound to the path */
} place = {.fd = -1};

/* Unix sockets by the low bits of the address 127.99.x.y that leads to them. */
enum { ROUTES = 4096 };
static struct sockaddr_un routes[ROUTES];
static bool routed; /* whether there was ever one; then all these addresses are ours */
static pthread_mutex_t routing = PTHREAD_MUTEX_INITIALIZER;

static void begin_place(int port) {
	place.port = htons((uint16_t)port);
	place.fd = -1;
	__atomic_store_n(&place.used, false, __ATOMIC_RELEASE);
	__atomic_store_n(&place.on, true, __ATOMIC_RELEASE);
}

/* Redirects the next binds of [any address]:port to host, which has 16 bytes. */
void gorbit_bind_to(const void *host, bool v4, int port) {
	place.v4 = v4;
	place.path.sun_path[0] = 0;
	memcpy(&place.host, host, sizeof place.host);
	begin_place(port);
}

/* Makes the next bind of [any address]:port one of a Unix socket. The path must fit. */
void gorbit_bind_to_path(const char *path, int port) {
	place.path.sun_family = AF_UNIX;
	strncpy(place.path.sun_path, path, sizeof place.path.sun_path - 1);
	begin_place(port);
}

/* Ends the redirection and returns whether a bind was redirected. */
bool gorbit_bind_done(void) {
	__atomic_store_n(&place.on, false, __ATOMIC_RELEASE);
	return __atomic_load_n(&place.used, __ATOMIC_ACQUIRE);
}

/* Makes 127.99.x.y, with x.y = i, lead to a Unix socket, or to none if the path is empty. */
void gorbit_route(int i, const char *path) {
	pthread_mutex_lock(&routing);
	routes[i].sun_family = AF_UNIX;
	memset(routes[i].sun_path, 0, sizeof routes[i].sun_path);
	strncpy(routes[i].sun_path, path, sizeof routes[i].sun_path - 1);
	routed = true;
	pthread_mutex_unlock(&routing);
}

static int libc_bind(int fd, const struct sockaddr *address, socklen_t size) {
	return (int)syscall(SYS_bind, fd, address, size);
}

static int libc_connect(int fd, const struct sockaddr *address, socklen_t size) {
	return (int)syscall(SYS_connect, fd, address, size);
}

/* Replaces the socket behind fd, which is neither bound nor connected, by a Unix socket. */
static int make_unix(int fd) {
	int flags = fcntl(fd, F_GETFL), close_on_exec = fcntl(fd, F_GETFD);
	if (flags < 0 || close_on_exec < 0) {
		return -1;
	}
	int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (made < 0) {
		return -1;
	}
	int result = -1;
	if (fcntl(made, F_SETFL, flags) == 0) {
		result = dup3(made, fd, close_on_exec & FD_CLOEXEC ? O_CLOEXEC : 0);
	}
	int why = errno;
	close(made);
	errno = why;
	return result < 0 ? -1 : 0;
}

static int bind_path(int fd) {
	if (make_unix(fd) < 0 || libc_bind(fd, (struct sockaddr *)&place.path, sizeof place.path) < 0) {
		return -1;
	}
	place.fd = fd;
	__atomic_store_n(&place.used, true, __ATOMIC_RELEASE);
	return 0;
}

static int bind4(int fd, const struct sockaddr *address, socklen_t size) {
	struct sockaddr_in a;
	memcpy(&a, address, sizeof a);
	if (a.sin_port != place.port || a.sin_addr.s_addr != htonl(INADDR_ANY)) {
		return libc_bind(fd, address, size);
	}
	if (place.path.sun_path[0] != 0) {
		return bind_path(fd);
	}
	if (!place.v4) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	memcpy(&a.sin_addr, place.host.s6_addr + 12, 4);
	__atomic_store_n(&place.used, true, __ATOMIC_RELEASE);
	return libc_bind(fd, (struct sockaddr *)&a, sizeof a);
}

static int bind6(int fd, const struct sockaddr *address, socklen_t size) {
	struct sockaddr_in6 a;
	memcpy(&a, address, sizeof a);
	static const uint8_t mapped_any[16] = {[10] = 0xff, [11] = 0xff};
	bool any = IN6_IS_ADDR_UNSPECIFIED(&a.sin6_addr) || memcmp(&a.sin6_addr, mapped_any, 16) == 0;
	if (a.sin6_port != place.port || !any) {
		return libc_bind(fd, address, size);
	}
	if (place.path.sun_path[0] != 0) {
		return bind_path(fd);
	}
	a.sin6_addr = place.host;
	__atomic_store_n(&place.used, true, __ATOMIC_RELEASE);
	return libc_bind(fd, (struct sockaddr *)&a, sizeof a);
}

/* Replaces the C library's bind in all libraries of the program. */
int bind(int fd, const struct sockaddr *address, socklen_t size) {
	if (__atomic_load_n(&place.on, __ATOMIC_ACQUIRE) && address != NULL) {
		if (size >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET) {
			return bind4(fd, address, size);
		}
		if (size >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6) {
			return bind6(fd, address, size);
		}
	}
	return libc_bind(fd, address, size);
}

/* Replaces the C library's getsockname. A server asks which port it got, and must hear the one that
 * it asked for. */
int getsockname(int fd, struct sockaddr *address, socklen_t *size) {
	if (__atomic_load_n(&place.on, __ATOMIC_ACQUIRE) && fd >= 0 && fd == place.fd) {
		struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = place.port};
		memcpy(address, &a, *size < sizeof a ? *size : sizeof a);
		*size = sizeof a;
		return 0;
	}
	return (int)syscall(SYS_getsockname, fd, address, size);
}

/* Returns the IPv4 address of a TCP address, in the order of the machine, or 0. */
static uint32_t ipv4(const struct sockaddr *address, socklen_t size) {
	if (size >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET) {
		struct sockaddr_in a;
		memcpy(&a, address, sizeof a);
		return ntohl(a.sin_addr.s_addr);
	}
	if (size >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6) {
		struct sockaddr_in6 a;
		memcpy(&a, address, sizeof a);
		uint32_t ip;
		memcpy(&ip, a.sin6_addr.s6_addr + 12, sizeof ip);
		return IN6_IS_ADDR_V4MAPPED(&a.sin6_addr) ? ntohl(ip) : 0;
	}
	return 0;
}

/* Replaces the C library's connect in all libraries of the program. Go's net does not use it. */
int connect(int fd, const struct sockaddr *address, socklen_t size) {
	uint32_t ip = address == NULL ? 0 : ipv4(address, size);
	if (ip >> 16 != (127 << 8 | 99) || (ip & 0xffff) >= ROUTES) {
		return libc_connect(fd, address, size);
	}
	pthread_mutex_lock(&routing);
	struct sockaddr_un to = routes[ip & 0xffff];
	bool ours = routed;
	pthread_mutex_unlock(&routing);
	if (!ours) {
		return libc_connect(fd, address, size);
	}
	if (to.sun_path[0] == 0) {
		errno = ECONNREFUSED;
		return -1;
	}
	return make_unix(fd) < 0 ? -1 : libc_connect(fd, (struct sockaddr *)&to, sizeof to);
}
