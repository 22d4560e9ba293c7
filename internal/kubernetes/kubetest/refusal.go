package kubetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What an API server says when it refuses, in its words: same_test.go holds them equal.

// fail answers with a Status.
func fail(w http.ResponseWriter, why *apierrors.StatusError) {
	s := why.ErrStatus
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s)
}

// failure is a refusal for which there is no word.
func failure(status int, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
		Message: message, Code: int32(status)}}
}

// refused is for a fault.
func (q request) refused(status int) *apierrors.StatusError {
	return failure(status, fmt.Sprintf("%s %s is refused", q.verb, q.kind))
}

// resource is how errors name the kind.
func (q request) resource() schema.GroupResource { return schema.ParseGroupResource(q.kind) }

// object is how a server names the kind that knows it by its CRD alone.
func (q request) object() schema.GroupKind {
	r := q.resource()
	return schema.GroupKind{Group: r.Group, Kind: kindOf(r.Resource)}
}

// forbidden is what RBAC answers the Agent.
func (q request) forbidden() *apierrors.StatusError {
	where := "at the cluster scope"
	if q.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", q.namespace)
	}
	r := q.resource()
	why := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", Agent, q.verb,
		r.Resource, r.Group, where)
	return apierrors.NewForbidden(r, q.name, errors.New(why))
}

// modified refuses a patch of another version.
func (q request) modified() *apierrors.StatusError {
	return apierrors.NewConflict(q.resource(), q.name, errors.New("the object has been modified; "+
		"please apply your changes to the latest version and try again"))
}

// otherVersion refuses to delete another version.
func (q request) otherVersion(wanted, is string) *apierrors.StatusError {
	of := q.resource()
	if strings.Contains(of.Group, ".projectcalico.org") {
		of.Resource = kindOf(of.Resource)
	}
	return apierrors.NewConflict(of, q.name, fmt.Errorf("the ResourceVersion in the precondition "+
		"(%s) does not match the ResourceVersion in record (%s). The object might have been "+
		"modified", wanted, is))
}

// misnamed is for a name that no object can have; nil: it can be one.
func (q request) misnamed(name string) *apierrors.StatusError {
	var all field.ErrorList
	for _, why := range validation.NameIsDNSSubdomain(name, false) {
		all = append(all, field.Invalid(field.NewPath("metadata", "name"), name, why))
	}
	if all == nil {
		return nil
	}
	return apierrors.NewInvalid(q.object(), name, all)
}

// unreadable is for a body that is no JSON; nil: it is.
func (q request) unreadable(body []byte) *apierrors.StatusError {
	var any map[string]any
	err := json.Unmarshal(body, &any)
	switch {
	case err == nil:
		return nil
	case q.verb == "create":
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be "+
			"of type %s): couldn't get version/kind; json parse error: %v (%s)", q.object().Kind,
			err, body))
	case q.verb == "patch":
		return apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	return nil
}

// noMergePatch is for another kind of patch; an API server knows others, too.
func noMergePatch() *apierrors.StatusError {
	e := failure(http.StatusUnsupportedMediaType, "the body of the request was in an unknown "+
		"format - accepted media types include: application/json-patch+json, "+
		"application/merge-patch+json, application/apply-patch+yaml")
	e.ErrStatus.Reason = metav1.StatusReasonUnsupportedMediaType
	return e
}

// tooLarge is for a version that the server has not seen.
func tooLarge(version, now int) *apierrors.StatusError {
	e := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d",
		version, now), 1)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return e
}

// tooOld is for a watch from a version that is history.
func tooOld(version, oldest int) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version,
		oldest))
}

// tooLate is for a page of a list that is history. It can be read on as it is now.
func tooLate(next string) *apierrors.StatusError {
	e := apierrors.NewResourceExpired("The provided continue parameter is too old to display a " +
		"consistent list result. You can start a new list without the continue parameter, or " +
		"use the continue token in this response to retrieve the remainder of the results. " +
		"Continuing with the provided token results in an inconsistent list - objects that " +
		"were created, modified, or deleted between the time the first chunk was returned and " +
		"now may show up in the list.")
	e.ErrStatus.ListMeta.Continue = next
	return e
}

// wrongOptions is for a watch that is to list.
func wrongOptions(option, why string) *apierrors.StatusError {
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "",
		field.ErrorList{field.Forbidden(field.NewPath(option), why)})
}
