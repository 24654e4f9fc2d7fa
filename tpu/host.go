package tpu

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// meshPort is the port by which the hosts of a TPU find each other.
const meshPort = "8476"

// hostBounds are the hosts of TPU v2 and v3 in x, y and z. Libtpu knows those of later ones.
var hostBounds = map[string]string{
	"v2-8": "1,1,1", "v2-32": "2,2,1", "v2-128": "4,4,1", "v2-256": "4,8,1", "v2-512": "8,8,1",
	"v3-8": "1,1,1", "v3-32": "2,2,1", "v3-64": "2,4,1", "v3-128": "4,4,1", "v3-256": "4,8,1", "v3-512": "8,8,1",
	"v3-1024": "8,16,1", "v3-2048": "16,16,1",
}

// Host is a host of a TPU.
type Host struct {
	// Kind is the TPU's accelerator type, such as v4-32.
	Kind string
	// Variables are the environment variables that a server on the host needs before TensorFlow's
	// library is loaded, as TensorFlow's own server sets them
	// (tensorflow/python/tools/grpc_tpu_worker.py).
	Variables map[string]string
}

// PJRT reports whether TensorFlow is documented to reach the chips of the host by a plugin of PJRT only,
// which a server of TensorFlow's C API does not load.
func (h Host) PJRT() bool {
	return strings.HasPrefix(h.Kind, "v5litepod") || strings.HasPrefix(h.Kind, "v5e") || strings.HasPrefix(h.Kind, "v6e")
}

// ThisHost describes the machine that it is called on, as the metadata server knows it. getenv reads the
// environment, usually os.Getenv.
func ThisHost(ctx context.Context, getenv func(string) string) (Host, error) {
	r := &Resolver{getenv: getenv, plain: &http.Client{CheckRedirect: noRedirect, Transport: &http.Transport{Proxy: nil}}}
	var worker, kind, endpoints, ip string
	for _, part := range []struct {
		value *string
		path  string
	}{
		{&worker, "attributes/agent-worker-number"},
		{&kind, "attributes/accelerator-type"},
		{&endpoints, "attributes/worker-network-endpoints"},
		{&ip, "network-interfaces/0/ip"},
	} {
		var err error
		if *part.value, err = r.metadata(ctx, "instance/"+part.path); err != nil {
			return Host{}, cmp.Or(context.Cause(ctx), err)
		}
	}
	first, _, _ := strings.Cut(endpoints, ",")
	fields := strings.Split(first, ":")
	if len(fields) < 3 || fields[2] == "" {
		return Host{}, fault.Usagef("the metadata server returned %q as worker-network-endpoints; expected NAME:PORT:ADDRESS,...", clip(endpoints))
	}
	out := map[string]string{
		"CLOUD_TPU_TASK_ID":           worker,
		"TPU_LOCK_DEVICE":             "true",
		"TPU_MESH_CONTROLLER_ADDRESS": fields[2] + ":" + meshPort,
		"TPU_MESH_CONTROLLER_PORT":    meshPort,
		"TPU_HOSTNAME_OVERRIDE":       ip,
	}
	if !strings.HasPrefix(kind, "v2-") && !strings.HasPrefix(kind, "v3-") {
		return Host{kind, out}, nil
	}
	bounds := cmp.Or(getenv("TPU_HOST_BOUNDS"), hostBounds[kind])
	if bounds == "" {
		return Host{}, fault.Usagef("the TPU is a %s, whose hosts TensorFlow does not know; set TPU_HOST_BOUNDS to how many there are in x, y and z, such as 2,2,1", clip(kind))
	}
	out["TPU_CHIPS_PER_HOST_BOUNDS"], out["TPU_HOST_BOUNDS"] = "2,2,1", bounds
	return Host{kind, out}, nil
}
