package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// status answers GET /v1/models/NAME as TensorFlow Serving's model status API does.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, ":") {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, &statusError{http.StatusMethodNotAllowed, fmt.Sprintf("GET %s is given; expected POST", words.Clip(r.URL.Path, 60))})
		return
	}
	m, err := s.model(r.PathValue("model"), r.PathValue("version"))
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, map[string]any{"model_version_status": []any{map[string]any{
		"version": strconv.FormatInt(m.Version, 10),
		"state":   s.state(),
		"status":  map[string]string{"error_code": "OK", "error_message": ""},
	}}})
}

// list answers GET /v1/models: the models by name, as TensorFlow Serving has no such path.
func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	models := []any{}
	for _, name := range s.names() {
		models = append(models, map[string]string{"name": name, "version": strconv.FormatInt(s.models[name].Version, 10), "state": s.state()})
	}
	writeJSON(w, map[string]any{"models": models})
}

// state returns the state of all models in TensorFlow Serving's words.
func (s *Server) state() string {
	if s.ready.Load() {
		return "AVAILABLE"
	}
	return "UNLOADING"
}

// metadata answers GET /v1/models/NAME/metadata as TensorFlow Serving's model metadata API does.
func (s *Server) metadata(w http.ResponseWriter, r *http.Request) {
	m, err := s.model(r.PathValue("model"), r.PathValue("version"))
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, map[string]any{
		"model_spec": map[string]string{"name": m.Name, "signature_name": "", "version": strconv.FormatInt(m.Version, 10)},
		"metadata": map[string]any{"signature_def": map[string]any{"signature_def": map[string]any{defaultSignature: map[string]any{
			"inputs":      tensorInfos(m.Inputs),
			"outputs":     tensorInfos(m.Outputs),
			"method_name": "tensorflow/serving/predict",
		}}}},
	})
}

// tensorInfos returns tensors as the JSON form of TensorFlow's TensorInfo.
func tensorInfos(all []Tensor) map[string]any {
	out := make(map[string]any, len(all))
	for _, t := range all {
		dims := make([]any, len(t.Shape))
		for i, d := range t.Shape {
			dims[i] = map[string]string{"size": strconv.FormatInt(d, 10), "name": ""}
		}
		dtype := "DT_" + strings.ToUpper(string(t.DType))
		if t.DType == "float32" {
			dtype = "DT_FLOAT"
		}
		out[t.Name] = map[string]any{"dtype": dtype, "name": t.Name, "tensor_shape": map[string]any{"dim": dims, "unknown_rank": false}}
	}
	return out
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.Encode(v) // the client may be gone
}
