// Package hub uploads folders to a model hub, as Hugging Face's: it creates the repository, asks
// which files are large, uploads those by the batch protocol of Git LFS, in parts if the hub says
// so, and makes one commit of all. Other programs see all of a push or nothing.
//
// The calls are those of huggingface_hub (its modules _commit_api and lfs), and of Git LFS
// (https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md):
//
//	POST /api/repos/create                    a repository that is there already has status 409
//	POST /api/models/REPO/preupload/REVISION  which files are large, and what the hub has of each
//	POST /REPO.git/info/lfs/objects/batch     where to upload large files; none for those it has
//	PUT  ...                                  a file, or its parts, at addresses of the hub's choice
//	POST /api/models/REPO/commit/REVISION     one commit, as lines of JSON
//
// Files are known to the hub by their checksums, so a push that was interrupted uploads, when it is
// made again, only what is missing, and one that changes nothing makes no commit.
//
// The token is sent to the hub's own address and to no other, and never over an open connection.
package hub
