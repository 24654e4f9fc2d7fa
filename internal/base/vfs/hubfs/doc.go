// Package hubfs speaks to a model hub, as Hugging Face's: it has the client with which folders are
// pushed, and makes the hub a file system of package vfs, for paths of the form
// hub:[datasets/]OWNER/NAME[@REVISION][/FILE].
//
// Files are downloaded when they are first read, and stay in the cache that Python's huggingface_hub
// has, in the same form, so that either finds what the other has downloaded:
//
//	models--OWNER--NAME/refs/REVISION             the commit that a branch or tag was at
//	models--OWNER--NAME/blobs/ETAG                the content of a file, by the name the hub gives it
//	models--OWNER--NAME/blobs/ETAG.incomplete     what has come of it
//	models--OWNER--NAME/snapshots/COMMIT/FILE     a link to the blob
//	.locks/models--OWNER--NAME/ETAG.lock          locked by the process that downloads it
//
// A blob gets its name when it is complete, by a rename, so a process that is killed leaves a part,
// from which the next one goes on. The hub names large files by their SHA-256 and small ones by that
// of Git's blob; both are checked after the download, and whenever a process opens the file first.
//
// The calls are those of huggingface_hub:
//
//	GET  /api/models/REPO/revision/REVISION       the commit, and the names of its files
//	HEAD /REPO/resolve/COMMIT/FILE                its ETag and size: X-Linked-Etag, X-Linked-Size
//	GET  /REPO/resolve/COMMIT/FILE                its content, also from a byte on
//
// The token is sent to the hub's own address and to no other, and never over an open connection.
package hubfs
