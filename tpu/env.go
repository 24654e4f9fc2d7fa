package tpu

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Environment variables, as in TensorFlow's client.
const (
	envGKE          = "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
	envName         = "TPU_NAME"
	envConfig       = "TPU_CONFIG"
	envMetadataHost = "GCE_METADATA_HOST"
	envMetadataIP   = "GCE_METADATA_IP"
)

// tpuConfig is the content of TPU_CONFIG.
type tpuConfig struct {
	Name    string `json:"tpu_node_name"`
	Project string `json:"project"`
	Zone    string `json:"zone"`
}

func parseTPUConfig(value string) (tpuConfig, error) {
	var c tpuConfig
	if err := json.Unmarshal([]byte(value), &c); err != nil {
		return c, fault.Usagef(`%s: %s; expected {"tpu_node_name": "...", "project": "...", "zone": "..."}`, envConfig, plainJSON(err))
	}
	if c.Name == "" {
		return c, fault.Usagef(`%s has no "tpu_node_name"; expected {"tpu_node_name": "...", "project": "...", "zone": "..."}`, envConfig)
	}
	return c, nil
}

// plainJSON describes an error in JSON without Go's type names.
func plainJSON(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		where := "the value"
		if wrong.Field != "" {
			where = strconv.Quote(wrong.Field)
		}
		return where + " has the wrong type, " + wrong.Value
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return "invalid JSON at byte " + strconv.FormatInt(syntax.Offset, 10)
	}
	return err.Error()
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
