// Package yamldoc turns YAML that people write into JSON, strictly and whole: of several documents
// in a file it drops none.
package yamldoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// All returns the documents of a file as JSON, with an error those before it, without empty ones.
func All(text []byte) (docs [][]byte, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.SetStrict(true)
	for {
		var v any
		switch err := dec.Decode(&v); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return docs, plain(err)
		case v == nil:
			continue
		}
		if v, err = withTextKeys(v); err != nil {
			return docs, err
		}
		doc, err := json.Marshal(v)
		if err != nil {
			return docs, err
		}
		docs = append(docs, doc)
	}
}

// One returns the document of a file that has at most one; without any: null.
func One(text []byte) ([]byte, error) {
	docs, err := All(text)
	switch {
	case err != nil:
		return nil, err
	case len(docs) == 0:
		return []byte("null"), nil
	case len(docs) > 1:
		return nil, fmt.Errorf("it has %d YAML documents, with --- between them; want one",
			len(docs))
	}
	return docs[0], nil
}

// plain is what the library says of the file, on one line.
func plain(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	for _, by := range []string{"yaml: ", "unmarshal errors: "} {
		text = strings.TrimPrefix(text, by)
	}
	return errors.New(text)
}

// withTextKeys is v as JSON can hold it, where every key is text.
func withTextKeys(v any) (out any, err error) {
	switch v := v.(type) {
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, value := range v {
			key, err := textKey(k)
			if err != nil {
				return nil, err
			}
			if _, twice := m[key]; twice {
				return nil, fmt.Errorf("key %q is there twice", key)
			}
			if m[key], err = withTextKeys(value); err != nil {
				return nil, err
			}
		}
		return m, nil
	case []any:
		for i := range v {
			if v[i], err = withTextKeys(v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// textKey is a key as Kubernetes' tools write it: a fraction in single precision, of integers only
// those that fit in 64 bits with a sign (sigs.k8s.io/yaml, convertToJSONableObject).
func textKey(k any) (string, error) {
	switch k := k.(type) {
	case string, bool, int, int64:
		return fmt.Sprint(k), nil
	case float64:
		switch text := strconv.FormatFloat(k, 'g', -1, 32); text {
		case "+Inf":
			return ".inf", nil
		case "-Inf":
			return "-.inf", nil
		case "NaN":
			return ".nan", nil
		default:
			return text, nil
		}
	}
	return "", fmt.Errorf("%v is no key", k)
}
