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

// metadataTimeout bounds a question to the metadata server: on machines that have none,
// its name often resolves to nothing, or its address swallows connections.
const metadataTimeout = 5 * time.Second

// metadata asks Google Compute Engine's metadata server, in the way of
// https://cloud.google.com/compute/docs/metadata/querying-metadata.
func (r *Resolver) metadata(ctx context.Context, path string) (string, error) {
	host := cmp.Or(r.getenv(envMetadataHost), r.getenv(envMetadataIP), "metadata.google.internal")
	ctx, cancel := context.WithTimeoutCause(ctx, metadataTimeout, fmt.Errorf("no answer in %v", metadataTimeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/computeMetadata/v1/"+path, nil)
	if err != nil {
		return "", fmt.Errorf("metadata server %q: expected a host, maybe with a port, in %s", host, envMetadataHost)
	}
	request.Header.Set("Metadata-Flavor", "Google")
	response, body, err := r.fetch(r.plain, request)
	if err != nil {
		return "", fmt.Errorf("metadata server %s: %w", host, err)
	}
	// Whatever answers without this header is no metadata server.
	if response.StatusCode != http.StatusOK || response.Header.Get("Metadata-Flavor") != "Google" {
		return "", fmt.Errorf("metadata server %s: unexpected answer %s to %s", host, clip(response.Status), path)
	}
	return strings.TrimSpace(string(body)), nil
}

// locate fills in the project and the zone of a node.
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
			return fmt.Errorf("TPU %s: no %s is given and this machine does not know its own (%w): give %s", r.target.name, part.what, err, part.flag)
		}
		// The zone comes as projects/NUMBER/zones/ZONE.
		answer = path.Base(answer)
		if !part.valid(answer) {
			return fmt.Errorf("TPU %s: the metadata server gave %q as this machine's %s: give %s", r.target.name, clip(answer), part.what, part.flag)
		}
		*part.value = answer
	}
	return nil
}
