#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The address that replaces "all addresses" in binds to this port. */
static struct {
	bool on, v4;
	uint16_t port;
	struct in6_addr host; /* v4-mapped if v4 */
	bool used;
} place;

/* Redirects the next binds of [any address]:port to host, which has 16 bytes. */
void gorbit_bind_to(const void *host, bool v4, int port) {
	place.v4 = v4;
	place.port = htons((uint16_t)port);
	memcpy(&place.host, host, sizeof place.host);
	__atomic_store_n(&place.used, false, __ATOMIC_RELEASE);
	__atomic_store_n(&place.on, true, __ATOMIC_RELEASE);
}

/* Ends the redirection and returns whether a bind was redirected. */
bool gorbit_bind_done(void) {
	__atomic_store_n(&place.on, false, __ATOMIC_RELEASE);
	return __atomic_load_n(&place.used, __ATOMIC_ACQUIRE);
}

static int libc_bind(int fd, const struct sockaddr *address, socklen_t size) {
	return (int)syscall(SYS_bind, fd, address, size);
}

static int bind4(int fd, const struct sockaddr *address, socklen_t size) {
	struct sockaddr_in a;
	memcpy(&a, address, sizeof a);
	if (a.sin_port != place.port || a.sin_addr.s_addr != htonl(INADDR_ANY)) {
		return libc_bind(fd, address, size);
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
