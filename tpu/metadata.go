package tpu

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

// metadataTimeout limits a request to the metadata server. On machines that have none, its name
// often does not resolve, or connections to its address hang.
const metadataTimeout = 5 * time.Second

// metadata queries the metadata server of Google Compute Engine, see
// https://cloud.google.com/compute/docs/metadata/querying-metadata.
func (r *Resolver) metadata(ctx context.Context, path string) (string, error) {
	host := cmp.Or(r.getenv(envMetadataHost), r.getenv(envMetadataIP), "metadata.google.internal")
	ctx, cancel := context.WithTimeoutCause(ctx, metadataTimeout, fmt.Errorf("no answer in %v", metadataTimeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/computeMetadata/v1/"+path, nil)
	if err != nil {
		return "", fmt.Errorf("metadata server is %q; expected HOST or HOST:PORT in %s", host, envMetadataHost)
	}
	request.Header.Set("Metadata-Flavor", "Google")
	response, body, err := r.fetch(r.plain, request)
	if err != nil {
		return "", fmt.Errorf("metadata server %s: %w", host, err)
	}
	// A reply without this header is not from a metadata server.
	if response.StatusCode != http.StatusOK || response.Header.Get("Metadata-Flavor") != "Google" {
		return "", fmt.Errorf("metadata server %s: unexpected reply %s to %s", host, clip(response.Status), path)
	}
	return strings.TrimSpace(string(body)), nil
}

// locate sets the project and the zone of a node if they are not given.
func (r *Resolver) locate(ctx context.Context) error {
	for _, part := range []struct {
		value            *string
		what, flag, path string
		valid            func(string) bool
	}{
		{&r.target.project, "project", "--tpu-project", "project/project-id", projectName.MatchString},
		{&r.target.zone, "zone", "--tpu-zone", "instance/zone", zoneName.MatchString},
	} {
		if *part.value != "" {
			continue
		}
		answer, err := r.metadata(ctx, part.path)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("TPU %s has no %s, and there is no default (%w); set %s", r.target.name, part.what, err, part.flag)
		}
		// The zone has the form projects/NUMBER/zones/ZONE.
		answer = path.Base(answer)
		if !part.valid(answer) {
			return fmt.Errorf("TPU %s: the metadata server returned %q as this machine's %s; set %s", r.target.name, clip(answer), part.what, part.flag)
		}
		*part.value = answer
	}
	return nil
}
